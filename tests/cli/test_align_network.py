"""The verb `align` with a trained acoustic model: of its own corpus, and of other recordings."""

from collections.abc import Callable
from pathlib import Path

import pytest
import tiny
import tiny_frames
import tiny_words
from console import Answer

from las.cli.train import train
from las.hmm.labels import FrameLabels
from las.scoring import ctm

Las = Callable[..., Answer]
DICTIONARY = "YES Y EH S\nNO N OW\nGO G OW\nON AA N\nSTOP S T AA P\nIT IH T\n"


@pytest.fixture(scope="module")
def acoustic_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a corpus on which a tiny acoustic model was trained, in `run`."""
    root = tmp_path_factory.mktemp("acoustic_model")
    tiny.tree(root)
    train(tiny_frames.overrides(root))
    return root


def test_a_trained_network_aligns_its_corpus_again(acoustic_model: Path, las: Las) -> None:
    root = acoustic_model
    output, labels = root / "again.ctm", root / "again"
    where = [f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", f"output={output}", f"labels={labels}"]
    answer = las("align", *where)
    assert (answer.code, answer.err) == (0, ""), answer.err
    assert "12 utterances written" in answer.out and "boundaries with known times: " in answer.out
    assert "realignment" not in answer.out, "nothing is trained"
    again = tiny_frames.overrides(root, f"labels={labels}", f"run_dir={root / 'run_again'}")
    assert las("train", *again).code == 0


def test_mixtures_are_trained_on_what_a_network_aligned(acoustic_model: Path, las: Las) -> None:
    root = acoustic_model
    where = [f"data_dir={root / 'data'}", f"output={root / 'mixtures.ctm'}", f"gaussians={root / 'mixtures'}"]
    answer = las("align", f"checkpoint={root / 'run'}", *where)
    assert answer.code == 0 and "Gaussians of " in answer.out, answer.err
    answer = las("decode", f"checkpoint={root / 'mixtures'}", f"data_dir={root / 'data'}", "split=test")
    assert answer.code == 0 and "test: PER " in answer.out, answer.err


def recordings(root: Path, texts: dict[str, str]) -> list[str]:
    """A corpus of one's own in `root/mine`: overrides that name it."""
    (root / "mine").mkdir()
    for name, text in texts.items():
        tiny.sound(root / "mine" / f"{name}.wav", 0.8, len(name))
        (root / "mine" / f"{name}.txt").write_text(text)
    own = ["corpus=files", "corpus.name=mine", f"corpus.train={root / 'mine'}", "corpus.dev_share=0.34"]
    return [*own, "corpus.test_share=0.34", f"data_dir={root / 'data'}"]


def test_other_recordings_are_aligned_by_phones(acoustic_model: Path, tmp_path: Path, las: Las) -> None:
    own = recordings(tmp_path, {"a": "sil aa iy sil", "bb": "sil iy sil", "ccc": "sil aa sil"})
    output = tmp_path / "mine.ctm"
    answer = las("align", f"checkpoint={acoustic_model / 'run'}", *own, f"output={output}")
    assert answer.code == 0, answer.err
    assert "3 utterances written" in answer.out and "realignment" not in answer.out
    spoken = {mark.file: [] for mark in ctm.read(output)}
    for mark in ctm.read(output):
        spoken[mark.file].append(mark.text)
    assert sorted(spoken.values()) == [["sil", "aa", "iy", "sil"], ["sil", "aa", "sil"], ["sil", "iy", "sil"]]
    answer = las("align", f"checkpoint={acoustic_model / 'run'}", *own, f"output={output}", "corpus.sample_rate=8000")
    assert answer.code == 2 and "and the model of the checkpoint hears 16000: corpus.sample_rate=16000" in answer.err


@pytest.mark.slow
def test_other_recordings_are_aligned_by_words(tmp_path: Path, las: Las) -> None:
    """By the tied states of the model; words of a dictionary that its phones cannot say are named."""
    pytest.importorskip("kaldi_decoder")
    root = tiny_words.tree(tmp_path)
    (root / "an4" / "etc" / "an4.dic").write_text(DICTIONARY)
    words = [*tiny_words.overrides(root)[:4], f"data_dir={root / 'data'}"]
    limits = ["triphones=true", "tying.min_count=3", "tying.min_gain=0.5", f"labels={root / 'tied'}"]
    assert las("align", *words, f"output={root / 'x.ctm'}", *limits).code == 0
    model = [*tiny_frames.MODEL, *tiny_frames.SHORT, "search=word_graph", "search@validation_search=word_graph"]
    plain = ["schedule=constant", "augment=none", f"labels={root / 'tied'}", f"run_dir={root / 'run'}"]
    answer = las("train", *words, *model, *plain)
    assert answer.code == 0, answer.err

    own = recordings(root, {"a": "NO YES", "bb": "STAY", "ccc": "BOY"})
    where = [f"checkpoint={root / 'run'}", f"output={root / 'mine.ctm'}"]
    answer = las("align", *where, *own)
    assert answer.code == 3 and "the dictionary lacks 2 words of 2 utterances" in answer.err
    more = root / "more.dic"
    more.write_text(f"{DICTIONARY}STAY S T EH\nBOY B OY\n")
    answer = las("align", *where, *own, f"lexicon={more}")
    assert answer.code == 3 and "BOY (1 times, first in utterance " in answer.err, answer.err
    left_out = "1 of 8 words are left out: the model of the checkpoint has no states of the phones B, OY"
    assert left_out in answer.out
    (root / "mine" / "ccc.txt").write_text("STAY NO")
    answer = las("align", *where, *own, f"lexicon={more}", f"labels={root / 'labels'}")
    assert answer.code == 0, answer.err
    phones = [mark.text for mark in ctm.read(root / "mine.phones.ctm") if mark.text != "SIL"]
    assert sorted(phones) == sorted(["N", "OW", "Y", "EH", "S", "S", "T", "EH", "S", "T", "EH", "N", "OW"])
    assert (root / "labels" / "tying.json").read_text() == (root / "tied" / "tying.json").read_text()
    assert len(FrameLabels(root / "labels")) == 3


def test_what_does_not_go_with_a_checkpoint_is_refused(acoustic_model: Path, las: Las) -> None:
    where = [f"checkpoint={acoustic_model / 'run'}", f"output={acoustic_model / 'x.ctm'}"]
    for given, message in (
        (["triphones=true"], "triphones=true does not go with checkpoint="),
        (["lexicon=words.dic"], "lexicon=words.dic: the model of the checkpoint is one of texts that are phones"),
        (["prior_scale=-1.0"], "prior_scale=-1.0 must be at least 0"),
        (["corpus.root=x"], ": other recordings than those of the training need a corpus="),
        (["features=mfcc40"], "features=mfcc40: align uses the features of the checkpoint"),
    ):
        answer = las("align", *where, *given)
        assert answer.code == 2 and message in answer.err, (given, answer.err)
