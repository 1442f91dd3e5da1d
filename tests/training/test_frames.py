"""Trainings of acoustic models on known times: from the command to the error rate, again, and what does not fit."""

import json
import math
from pathlib import Path

import pytest
import torch
from console import Las
from tiny import steps
from tiny_frames import MODEL, SHORT, overrides

from las.config.build import build, compose
from las.data.manifest import Utterance
from las.hmm import spoken
from las.nn.acoustic_model import AcousticModel
from las.runtime.errors import DataError
from las.storage import checkpoint
from las.training.tasks import frame_labels


def test_a_training_ends_with_scores_and_goes_on_to_the_bit(corpus: Path, las: Las) -> None:
    whole = las("train", *overrides(corpus)).succeeds()
    assert "the dev frames" in whole.out and "test: PER " in whole.out
    result = json.loads((corpus / "run" / "result.json").read_text())
    assert result["steps"] == 4 and set(result["splits"]) == {"dev", "test"}
    stopped = [f"run_dir={corpus / 'parts'}"]
    assert las("train", *overrides(corpus, *stopped, "trainer.max_steps=2")).code == 0
    assert las("train", *overrides(corpus, *stopped)).code == 0
    one, other = (checkpoint.newest(corpus / name / "checkpoints")[0] for name in ("run", "parts"))
    assert one is not None and other is not None
    assert all(torch.equal(one.model[name], other.model[name]) for name in one.model)
    priors = one.model["log_priors"].exp()
    assert float(priors.sum()) == pytest.approx(1.0) and len(priors) == 144
    shares = one.model["bigram"].exp().sum(1)
    assert (shares > 0.95).all() and (shares < 1.0001).all(), "the rest is for phones that are not in the set"
    again = las(
        "decode", f"checkpoint={corpus / 'run'}", "split=test", "search=phone_bigram", f"data_dir={corpus / 'data'}"
    )
    assert again.code == 0 and "test: PER " in again.out, again.err


def test_products_in_bf16_train(corpus: Path, las: Las) -> None:
    assert las("train", *overrides(corpus, "trainer.precision=bf16")).code == 0
    losses = [line["loss"] for line in steps(corpus / "run") if line["event"] == "train"]
    assert len(losses) == 4 and all(map(math.isfinite, losses))


def test_other_times_stop_a_training(corpus: Path, las: Las) -> None:
    assert las("train", *overrides(corpus, "trainer.max_steps=2")).code == 0
    path = next((corpus / "TIMIT" / "TRAIN").rglob("*.PHN"))
    lines = path.read_text().splitlines()
    ends = [line.split() for line in lines]
    moved = str(int(ends[0][1]) + 160)
    ends[0][1], ends[1][0] = moved, moved
    path.write_text("".join(f"{' '.join(line)}\n" for line in ends))
    las("train", *overrides(corpus)).fails(5, "the training utterances")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["search=greedy"], "choose search=phone_bigram"),
        (["search@validation_search=greedy"], "choose search=phone_bigram"),
        (["loss=cross_entropy"], "choose loss=frame_focal"),
        (["model=las_small", "search=phone_bigram"], "choose search=greedy or search=beam"),
        (["model=las_small", "loss=frame_focal"], "choose loss=cross_entropy"),
        (["augment=specaugment_ld"], "++augment.max_warp_frames=0"),
        (["++model.states_per_phone=1"], "and the labels have 144"),
    ],
)
def test_what_does_not_fit_is_named(corpus: Path, las: Las, change: list[str], message: str) -> None:
    command = [*overrides(corpus)[:5], *SHORT] if "model=las_small" in change else overrides(corpus)
    las("train", *command, *change).fails(2, message)


def test_a_corpus_without_times_is_refused(tmp_path: Path) -> None:
    config = compose("train", [*MODEL, f"data_dir={tmp_path}"])
    corpus = build(config["corpus"], where="corpus")
    made: AcousticModel = build(config["model"], where="model")(16000, corpus.tokens.size)
    lexicon = frame_labels.lexicon_of(corpus, config)
    source = frame_labels.TimedLabels(corpus, lexicon, made, spoken.topology(corpus, lexicon))
    with pytest.raises(DataError, match=r"u1: synthetic .*: labels=align"):
        source.targets(Utterance("u1", "", 0, 0.0, 1.0, "sil aa", "s"))


def test_recordings_are_refused_in_words(corpus: Path, las: Las) -> None:
    las("train", *overrides(corpus, "trainer.max_steps=2")).succeeds()
    decode, audio = ("decode", f"checkpoint={corpus / 'run'}"), f"audio={next(corpus.rglob('*.WAV'))}"
    las(*decode, audio, "search=phone_bigram", f"output={corpus / 'x.jsonl'}").fails(2, "has no times")
    las(*decode, "split=test", "search=greedy", f"data_dir={corpus / 'data'}").fails(2, "search=phone_bigram")
