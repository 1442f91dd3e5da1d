"""Labels of frames in trainings: stored ones are as good as the times they come from, and others stop a run."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from console import Las
from tiny_frames import overrides

from las.config.build import build, compose
from las.data.corpora.base import Corpus
from las.hmm import labels, spoken
from las.hmm.labels import FrameLabels, LabelKind
from las.nn.acoustic_model import AcousticModel
from las.training.tasks import frame_labels
from las.training.tasks.frame_labels import TimedLabels


@pytest.fixture
def stored(corpus: Path) -> Path:
    """Labels of the tiny corpus by its known times, in a folder."""
    config = compose("train", overrides(corpus))
    timit: Corpus = build(config["corpus"], where="corpus")
    model: AcousticModel = build(config["model"], where="model")(timit.sample_rate, timit.tokens.size)
    lexicon = frame_labels.lexicon_of(timit, config)
    source = TimedLabels(timit, lexicon, model, spoken.topology(timit, lexicon))
    everything = [each for listed in timit.prepare(corpus / "data" / "manifests").values() for each in listed]
    labelled = [(each.id, source.targets(each)) for each in everything]
    return labels.write(corpus / "labels", labelled, LabelKind.of(source.topology, source.times)).folder


def relabelled(folder: Path, name: str, change: Callable[[labels.Labels], labels.Labels]) -> None:
    """The labels of an utterance changed."""
    before = FrameLabels(folder)
    everything = [(each, np.array(before.of(each))) for each in before._places]
    shutil.rmtree(folder)
    labels.write(folder, [(each, change(own) if each == name else own) for each, own in everything], before.kind)


def test_other_labels_stop_a_run_and_the_same_elsewhere_do_not(corpus: Path, stored: Path, las: Las) -> None:
    chosen = f"labels={stored}"
    assert las("train", *overrides(corpus, chosen, "trainer.max_steps=2")).code == 0
    moved = shutil.copytree(stored, corpus / "moved")
    assert las("train", *overrides(corpus, f"labels={moved}", "trainer.max_steps=3")).code == 0
    relabelled(stored, "ftr0_sx0", lambda own: np.roll(own, 1))
    answer = las("train", *overrides(corpus, chosen))
    assert answer.code == 5, answer.err
    assert "labels of frames:" in answer.err and "Restore what it" in answer.err
    las("train", *overrides(corpus, "labels=times")).fails(5, "labels of frames:")


def test_utterances_without_labels_are_named_and_left_out(corpus: Path, stored: Path, las: Las) -> None:
    before = FrameLabels(stored)
    lacking = ("ftr0_sx0", "fadg0_sx0")
    kept = [(name, np.array(before.of(name))) for name in before._places if name not in lacking]
    shutil.rmtree(stored)
    labels.write(stored, kept, before.kind)
    answer = las("train", *overrides(corpus, f"labels={stored}", "trainer.max_steps=2")).succeeds()
    assert "1 utterance: ftr0_sx0" in answer.out
    assert "1 utterance: fadg0_sx0" in answer.out
    assert "7 training utterances" in answer.out


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ("labels=absent", 5, "absent: there are no labels of frames here, it has no index.json"),
        ("labels=3", 2, "labels=3 should be"),
    ],
)
def test_labels_that_are_none_are_named(corpus: Path, las: Las, change: str, code: int, message: str) -> None:
    answer = las("train", *overrides(corpus, change))
    assert answer.code == code and message in answer.err, answer.err


def test_labels_of_other_audio_or_another_corpus_are_refused(corpus: Path, stored: Path, las: Las) -> None:
    relabelled(stored, "ftr0_sx1", lambda own: own[:-5])
    las("train", *overrides(corpus, f"labels={stored}")).fails(3, "ftr0_sx1:  at most 2")
    before = FrameLabels(stored)
    kind = before.kind
    shutil.rmtree(stored)
    labels.write(stored, [("u1", np.zeros(9, np.int16))], kind)
    las("train", *overrides(corpus, f"labels={stored}", f"run_dir={corpus / 'other'}")).fails(3, "none of ftr0_sx0")
