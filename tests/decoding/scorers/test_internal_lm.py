"""The internal language model of a speller: the pass over a whole text whose contexts are all zero, or their mean."""

import json
from pathlib import Path

import pytest
import torch
from console import Las
from options import names
from speller_cases import NUM_STATES, VALUE, VOCAB, make, material

from las.data.tokenizers import Characters
from las.decoding.scorers.internal_lm import InternalLMScorer
from las.decoding.search import BeamSearch
from las.nn.ctc import CTC
from las.nn.kernels import choice
from las.nn.model import Decoder


@pytest.mark.parametrize("attention", names("attention"))
def test_hypotheses_lose_what_the_speller_says_of_them_with_one_context(
    attention: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean, scorer = torch.zeros(VALUE).double(), InternalLMScorer(0.4)
    if attention != "dot":
        mean, scorer = torch.arange(VALUE) / 4.0, InternalLMScorer(0.4, str(tmp_path / "contexts.jsonl"))
        (tmp_path / "contexts.jsonl").write_text(f'{{"mean": [9.0]}}\n{{"mean": {mean.tolist()}}}\n')
        scorer.bind(Characters("abcde"), has_ctc=False)
    speller = make(attention, "zeineldeen2020_joined_cell", hidden_size=8).requires_grad_(False)
    speller.attention.use_ctc(CTC(VALUE, VOCAB).double().requires_grad_(False))
    memory = speller.attention.prepare(material(), NUM_STATES)
    search = BeamSearch(3, 0.0, 3, max_length=4, internal_lm=scorer)
    found = search(Decoder(speller, memory), NUM_STATES)
    assert len({tuple(each.tokens) for each in found[0]}) == 3

    attend = speller.attention.attend
    monkeypatch.setattr(
        speller.attention, "attend", lambda *given: (memory.values[:, :1] * 0 + mean, *attend(*given)[1:])
    )
    for hypotheses in found:
        for each in hypotheses:
            targets = torch.tensor([each.tokens] * 3, dtype=torch.long)
            with choice.use_kernel("plain"):
                log_probs = speller(memory, targets).logits[0].log_softmax(-1)
            alone = log_probs.gather(1, torch.tensor([*each.tokens, 0]).unsqueeze(1)).sum()
            assert each.scores["internal_lm"] == pytest.approx(-float(alone), rel=1e-6)
            assert each.score == pytest.approx(each.scores["las"] + 0.4 * each.scores["internal_lm"], rel=1e-6)


def test_the_mean_context_of_a_checkpoint_is_measured_for_its_search(trained: Path, las: Las, tmp_path: Path) -> None:
    places = [f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}"]
    las("analyze", *places, "what=contexts", f"output={tmp_path}").succeeds("contexts")
    (found,) = [json.loads(line) for line in (tmp_path / "contexts.jsonl").read_text().splitlines()]
    assert found["tokens"] >= 4 and len(found["mean"]) == 16 and any(found["mean"])
    decode = ["decode", *places, "split=dev", "search=beam", "search.size=3", "+scorer@search.internal_lm=internal_lm"]
    texts = []
    for contexts in ("null", str(tmp_path / "contexts.jsonl")):
        output = tmp_path / "x.jsonl"
        las(*decode, f"search.internal_lm.contexts={contexts}", f"output={output}").succeeds("PER")
        texts.append([json.loads(line)["score"] for line in output.read_text().splitlines()])
    assert texts[0] != texts[1]
    (tmp_path / "other.jsonl").write_text('{"mean": [1.0]}\n')
    las(*decode, f"search.internal_lm.contexts={tmp_path / 'other.jsonl'}").fails(2, "contexts")
    las(*decode, f"search.internal_lm.contexts={tmp_path / 'x.jsonl'}").fails(3, "x.jsonl")
