"""The expansion of beams by one symbol: the compiled loop against torch's operations, and what both promise."""

import math

import pytest
import torch
from kernel_cases import compiles

from las.decoding.beam_expansion import BeamExpansion, BeamState, CompiledBeamExpansion, expansion_on, first_beams

EOS = 2
KINDS = [BeamExpansion, pytest.param(CompiledBeamExpansion, marks=compiles)]


def drawn(batch: int, beams: int, vocab: int, dtype: torch.dtype, seed: int) -> tuple[BeamState, torch.Tensor]:
    """Beams in the middle of a search and scores of symbols; few different values, so that there are many ties."""
    generator = torch.Generator().manual_seed(seed)

    def draw(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=generator)

    scores = -draw(4, batch, beams).double()
    scores[draw(5, batch, beams) == 0] = -math.inf
    finished = (draw(3, batch, beams) == 0) | (scores == -math.inf)
    symbols = -draw(3, batch, beams, vocab).to(dtype) / 2
    symbols[draw(6, batch, beams, vocab) == 0] = -math.inf
    beams_state = BeamState(draw(vocab, batch, beams), scores, scores, 1 + draw(5, batch, beams), finished)
    return beams_state, symbols


@compiles
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [0.0, 0.7, 1.0])
@pytest.mark.parametrize(
    ("batch", "beams", "vocab", "size"), [(1, 1, 4, 8), (3, 8, 29, 8), (2, 5, 3, 40), (4, 16, 500, 5)]
)
def test_the_compiled_expansion_is_equal(
    batch: int, beams: int, vocab: int, size: int, exponent: float, dtype: torch.dtype
) -> None:
    for seed in range(10):
        state, symbols = drawn(batch, beams, vocab, dtype, seed)
        at_limit = torch.arange(batch).unsqueeze(1) % 3 == seed % 3
        (expected, parents), (found, found_parents) = (
            kind(EOS, size, exponent).extend(state, symbols, symbols[:, :, EOS] - 1, at_limit)
            for kind in (BeamExpansion, CompiledBeamExpansion)
        )
        assert torch.equal(found_parents, parents)
        for name, one in found._asdict().items():
            torch.testing.assert_close(one, getattr(expected, name), atol=0, rtol=1e-14)


@pytest.mark.parametrize("kind", KINDS)
def test_ties_go_to_the_lower_beam_and_symbol(kind: type[BeamExpansion]) -> None:
    state = first_beams(EOS, torch.tensor([1]))
    beams, parents = kind(EOS, 3, 1.0).extend(state, torch.zeros(1, 1, 5), torch.zeros(1, 1), torch.tensor([[False]]))
    assert beams.tokens.tolist() == [[0, 1, 2]]
    beams, parents = kind(EOS, 4, 0.0).extend(beams, torch.zeros(1, 3, 5), torch.zeros(1, 3), torch.tensor([[False]]))
    assert parents.tolist() == [[0, 0, 0, 0]] and beams.tokens.tolist() == [[0, 1, 2, 3]]


@pytest.mark.parametrize("kind", KINDS)
def test_at_the_limit_only_the_end_follows_and_finished_beams_stay(kind: type[BeamExpansion]) -> None:
    scores = torch.tensor([[-1.0, -2.0]], dtype=torch.float64)
    finished = torch.tensor([[True, False]])
    state = BeamState(torch.tensor([[EOS, 1]]), scores, scores, torch.tensor([[3, 3]]), finished)
    beams, parents = kind(EOS, 2, 0.0).extend(
        state, torch.zeros(1, 2, 4), torch.full((1, 2), -5.0), torch.tensor([[True]])
    )
    assert parents.tolist() == [[0, 1]] and beams.tokens.tolist() == [[EOS, EOS]]
    assert beams.scores.tolist() == [[-1.0, -7.0]] and beams.lengths.tolist() == [[3, 4]]
    assert beams.finished.all()


@compiles
def test_a_cpu_uses_the_compiled_loop() -> None:
    assert isinstance(expansion_on(torch.device("cpu"), EOS, 8, 1.0), CompiledBeamExpansion)
