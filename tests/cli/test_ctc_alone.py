"""A model with CTC alone from its training to its transcriptions, by the command line."""

import json
from pathlib import Path

import pytest
from console import Las
from tiny_words import TRAIN, overrides, tree, wav

from las.cli import train

WORDS = sorted({word for text in TRAIN for word in text.split()})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with CTC alone of a tiny corpus, and a list of its words."""
    root = tree(tmp_path_factory.mktemp("ctc"))
    given = [each for each in overrides(root) if "speller" not in each]
    train.train([*given, "model=ctc_small", "trainer.select=dev_loss"])
    (root / "words.txt").write_text("\n".join(WORDS))
    return root


def test_it_is_validated_by_its_own_loss(root: Path) -> None:
    lines = [json.loads(line) for line in (root / "run/metrics.jsonl").read_text().splitlines()]
    losses = [line["dev_loss"] for line in lines if line["event"] == "validation"]
    assert len(losses) == 2 and losses[1] < losses[0]


@pytest.mark.parametrize("search", ["greedy", "ctc", "beam_words"])
def test_it_is_decoded_with_and_without_words(root: Path, las: Las, search: str) -> None:
    words = [f"search.word_lm.words={root / 'words.txt'}", "search.word_lm.oov_penalty=null"]
    given = [f"search={search}", *(words if search == "beam_words" else [])]
    out = root / f"{search}.jsonl"
    las("decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=test", f"output={out}", *given)
    texts = [json.loads(line)["text"] for line in out.read_text().splitlines()]
    assert len(texts) == 2
    if search == "beam_words":
        assert {word for text in texts for word in text.split()} <= set(WORDS)


def test_its_transcriptions_have_times_in_order_and_confidences(root: Path, las: Las) -> None:
    checkpoint, audio = f"checkpoint={root / 'run'}", wav(root, "fccc_1")
    las("transcribe", checkpoint, f"input={audio}", "search=greedy", f"output={root / 'x.jsonl'}").succeeds()
    transcription = json.loads((root / "x.jsonl").read_text())
    times = [time for token in transcription["tokens"] for time in (token["start_s"], token["end_s"])]
    assert times == sorted(times) and (not times or times[-1] <= transcription["duration_s"])
    assert all(0 < token["confidence"] <= 1 for token in transcription["tokens"])


@pytest.mark.parametrize("verb", ["export", "analyze"])
def test_what_needs_a_speller_says_so(root: Path, las: Las, verb: str) -> None:
    more = {
        "export": [f"programs={root / 'programs'}"],
        "analyze": ["what=[distributions]", f"data_dir={root / 'data'}"],
    }[verb]
    las(verb, f"checkpoint={root / 'run'}", f"output={root / verb}", *more).fails(2, "CTCModel")


def test_a_loss_of_tokens_and_a_reward_for_attention_are_refused(root: Path, las: Las) -> None:
    given = [each for each in overrides(root) if "speller" not in each and not each.startswith("run_dir")]
    las("train", *given, "model=ctc_small", "loss=joint_ctc", f"run_dir={root / 'joint'}").fails(2, "loss=ctc")
    decode = ["decode", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "split=dev"]
    las(*decode, "+scorer@search.internal_lm=internal_lm").fails(2, "search.internal_lm")
    tune = ["tune", f"checkpoint={root / 'run'}", f"data_dir={root / 'data'}", "search=ctc", "search.hot_words=[STOP]"]
    las(*tune, "weights.lm=null", "weights.hot_words=[1.0]").fails(2, "weights.coverage=[0.0]")
    las(*tune, "weights.lm=null", "weights.hot_words=[1.0]", "weights.coverage=[0.0]").succeeds("combinations")
    las(*decode, "search=tuned").succeeds("WER")
