"""Several models in one search: the search of their mean, and by the command line."""

import json
from pathlib import Path

import pytest
import tiny
import torch
from console import Las
from toy_search import ToyDecoder

from las.decoding.search import BeamSearch, GreedySearch
from las.nn.ensemble import EnsembleDecoder


@pytest.mark.parametrize("mean", ["linear", "log_linear"])
@pytest.mark.parametrize("search", [GreedySearch(), BeamSearch(4, nbest=4)])
def test_it_is_the_search_of_the_mean(mean: str, search: GreedySearch | BeamSearch) -> None:
    num_states = torch.tensor([6, 0, 3, 9])
    members = [ToyDecoder.random(seed, num_states.tolist(), 4) for seed in (1, 2, 3)]
    tables = [member.table.exp() for member in members]
    if mean == "linear":
        table = (tables[0] + tables[1] + tables[2]) / 3
    else:
        product = (tables[0] * tables[1] * tables[2]) ** (1 / 3)
        table = product / product.sum(-1, keepdim=True)
    expected = search(ToyDecoder(table.log(), members[0].attention, members[0].heard), num_states)
    for found, wanted in zip(search(EnsembleDecoder(members, mean), num_states), expected, strict=True):
        assert [each.tokens for each in found] == [each.tokens for each in wanted]
        assert [each.score for each in found] == pytest.approx([each.score for each in wanted], rel=1e-9)


def test_ctc_is_averaged_where_states_are_as_many() -> None:
    heard = [torch.tensor([[[0.5, 0.5], [0.1, 0.9]]]), torch.tensor([[[0.3, 0.7], [0.9, 0.1]]])]
    members = [ToyDecoder(torch.zeros(1, 1, 2), torch.zeros(1, 1, 2), each.log()) for each in heard]
    mean = EnsembleDecoder(members, "linear").ctc_log_probs().exp()
    torch.testing.assert_close(mean, (heard[0] + heard[1]).double() / 2)


def test_checkpoints_decode_together(trained: Path, las: Las, tmp_path: Path) -> None:
    run, written = trained / "run", {}
    first, *_, last = sorted((run / "checkpoints").glob("step-*"))
    for name, model, others in (("one", last, []), ("same", last, [last]), ("two", last, [first])):
        output = tmp_path / f"{name}.jsonl"
        given = [f"checkpoint={model}", f"ensemble=[{','.join(map(str, others))}]", f"data_dir={trained / 'data'}"]
        las("decode", *given, "split=dev", "search=beam", "search.nbest=3", f"output={output}").succeeds("PER")
        written[name] = [json.loads(line) for line in output.read_text().splitlines()]
    for one, same, two in zip(*written.values(), strict=True):
        assert same["text"] == one["text"] and same["score"] == pytest.approx(one["score"], abs=2e-4)
        assert two["score"] != pytest.approx(one["score"], abs=2e-4)

    recording = f"input={tiny.wav(trained, 'fadg0_sx0')}"
    pair = [f"checkpoint={last}", f"ensemble=[{first}]", "search=beam", "ensemble_mean=log_linear"]
    scorers = ["+scorer@search.coverage=coverage", "+scorer@search.internal_lm=internal_lm"]
    las("transcribe", *pair, *scorers, recording, f"output={tmp_path / 'x.jsonl'}").succeeds()
    tokens = json.loads((tmp_path / "x.jsonl").read_text())["tokens"]
    assert all(0 < token["confidence"] <= 1 for token in tokens)


def test_models_that_do_not_belong_together_are_named(trained: Path, las: Las) -> None:
    decode = ["decode", f"checkpoint={trained / 'run'}", f"data_dir={trained / 'data'}", "split=dev"]
    las(*decode, "ensemble=[an4]").fails(2, "an4 symbols")
    las(*decode, "ensemble=3").fails(2, "ensemble=3")
    las(*decode, f"ensemble={trained / 'run'}", "ensemble_mean=cubic").fails(2, "ensemble_mean cubic")
