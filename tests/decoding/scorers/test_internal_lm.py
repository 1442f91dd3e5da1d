"""The internal language model of a speller: the pass over a whole text whose contexts are all zero."""

import pytest
import torch
from options import names
from speller_cases import NUM_STATES, VALUE, VOCAB, make, material

from las.decoding.scorers.internal_lm import InternalLMScorer
from las.decoding.search import BeamSearch
from las.nn.ctc import CTC
from las.nn.kernels import choice
from las.nn.model import Decoder


@pytest.mark.parametrize("attention", names("attention"))
def test_hypotheses_lose_what_the_speller_says_of_them_with_contexts_of_zero(
    attention: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speller = make(attention, "zeineldeen2020_joined_cell", hidden_size=8).requires_grad_(False)
    speller.attention.use_ctc(CTC(VALUE, VOCAB).double().requires_grad_(False))
    memory = speller.attention.prepare(material(), NUM_STATES)
    search = BeamSearch(3, 0.0, 3, max_length=4, internal_lm=InternalLMScorer(0.4))
    found = search(Decoder(speller, memory), NUM_STATES)
    assert len({tuple(each.tokens) for each in found[0]}) == 3

    attend = speller.attention.attend
    monkeypatch.setattr(speller.attention, "attend", lambda *given: (memory.values[:, :1] * 0, *attend(*given)[1:]))
    for hypotheses in found:
        for each in hypotheses:
            targets = torch.tensor([each.tokens] * 3, dtype=torch.long)
            with choice.use_kernel("plain"):
                log_probs = speller(memory, targets).logits[0].log_softmax(-1)
            alone = log_probs.gather(1, torch.tensor([*each.tokens, 0]).unsqueeze(1)).sum()
            assert each.scores["internal_lm"] == pytest.approx(-float(alone), rel=1e-6)
            assert each.score == pytest.approx(each.scores["las"] + 0.4 * each.scores["internal_lm"], rel=1e-6)
