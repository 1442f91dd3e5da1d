"""`tune search=phone_bigram`: every combination is what decoding with it gives, and the best is kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from console import Answer

from las.cli import tune

Las = Callable[..., Answer]
MODEL = ["model=hybrid_small", "model.listener.hidden_size=8", "model.features.num_mels=8"]
SHORT = [
    *("trainer.max_steps=4", "trainer.batch_size=4", "trainer.validate_every=2", "trainer.num_workers=0"),
    *("trainer.histograms=false", "trainer.attention_pictures=false"),
]


@pytest.fixture
def model(corpus: Path, las: Las) -> list[str]:
    """A trained acoustic model: the arguments that name it."""
    places = ["corpus=timit", f"corpus.root={corpus / 'TIMIT'}", "corpus.partial=true", f"data_dir={corpus / 'data'}"]
    answer = las("train", *places, f"run_dir={corpus / 'run'}", *MODEL, *SHORT)
    assert answer.code == 0, answer.err
    return [f"checkpoint={corpus / 'run'}", f"data_dir={corpus / 'data'}"]


@pytest.mark.slow
def test_the_best_scales_are_kept(model: list[str], corpus: Path, las: Las) -> None:
    grid = ["scales.prior_scale=[0,1.0]", "scales.lm_scale=[0.5,3]", "scales.insertion=[-5]"]
    tried = tune.tune([*model, "search=phone_bigram", *grid])
    assert [each.scales for each in tried] != [] and len(tried) == 4
    rates = [each.score.total.rate for each in tried]
    assert rates == sorted(rates)
    stored = json.loads((corpus / "run" / "tuned.json").read_text())
    assert stored["search"] == {"_target_": "las.PhoneBigramSearch", "acoustic_scale": 1.0, **tried[0].scales}
    answer = las("decode", *model, "split=dev", "search=tuned", f"output={corpus / 'dev.jsonl'}")
    assert answer.code == 0 and f"PER {100 * rates[0]:.1f} %" in answer.out, answer.out
    for each in tried:
        scales = [f"search.{name}={value}" for name, value in each.scales.items()]
        answer = las("decode", *model, "split=dev", "search=phone_bigram", *scales, f"output={corpus / 'dev.jsonl'}")
        assert f"PER {100 * each.score.total.rate:.1f} %" in answer.out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("scales.lm_scale=[]", "scales.lm_scale=[] should list values"),
        ("scales.lm_scale=2", "scales.lm_scale=2 should be"),
        ("scales.prior_scale=[-1.0]", "prior_scale=-1"),
        ("++scales.lm=[1.0]", "scales.lm"),
        ("search=beam_lm", "search.lm.path has no value"),
    ],
)
def test_what_cannot_be_tuned_is_named(change: str, says: str, las: Las) -> None:
    answer = las("tune", "checkpoint=x", "search=phone_bigram", change)
    assert answer.code == 2 and says in answer.err, answer.err
