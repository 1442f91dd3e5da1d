"""The expansion of beams by one symbol: the compiled loop against torch's operations, and what both promise."""

import math

import pytest
import torch
from kernel_cases import compiles

from las.decoding.beam_expansion import BeamExpansion, BeamState, CompiledBeamExpansion, expansion_on

EOS = 2


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


@compiles
def test_a_cpu_uses_the_compiled_loop() -> None:
    assert isinstance(expansion_on(torch.device("cpu"), EOS, 8, 1.0), CompiledBeamExpansion)
