"""`las check`, what `las prepare` prints, and tokens that are learned when a corpus is prepared."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from console import Las
from tiers import rest_slow
from tiny import MODEL, QUICK, SHORT, sound
from tiny_words import TRAIN, name, overrides, tree, wav

from las.data.audio import worker_pool
from las.data.audio.worker import measure
from las.data.tokenizers import SentencePieces, from_state
from las.storage import checkpoint

PIECES = ["tokens@corpus.tokens=bpe_1k", "corpus.tokens.size=16"]


@pytest.fixture
def words(tmp_path: Path) -> Path:
    return tree(tmp_path)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that are read to their end."""
    found: list[str] = []

    def counting(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        if function is measure:
            found.append(Path(name).stem)
        return function(*arguments)

    monkeypatch.setattr(worker_pool, "run_in_worker", counting)
    return found


def test_problems_of_every_split_are_listed_counted_and_end_in_3(words: Path, las: Las) -> None:
    for utterance in (name("train", 1), name("train", 2), name("dev", 0)):
        wav(words, utterance).write_bytes(b"")
    soundfile.write(wav(words, name("test", 1)), np.zeros(8000, np.int16), 16000)
    answer = las("check", *overrides(words))
    ledger = words / "data/checks/an4/bad_utterances.jsonl"
    answer.fails(3, f"an4: 3 12 {ledger}")
    entries = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert [(entry["split"], entry["utterance_id"], entry["kind"]) for entry in entries] == [
        ("train", name("train", 1), "empty file"),
        ("train", name("train", 2), "empty file"),
        ("dev", name("dev", 0), "empty file"),
        ("test", name("test", 1), "silent"),
    ]
    assert re.search(r"empty file +. +2 . +1 . +0 ", answer.out) and re.search(r"silent +. +0 . +0 . +1 ", answer.out)


def test_limits_are_keys_of_the_config(words: Path, las: Las) -> None:
    soundfile.write(wav(words, name("train", 0)), 1.2 * np.sin(np.arange(8000) * 0.1), 16000, "FLOAT")
    assert "clipped: " in las("check", *overrides(words)).out
    answer = las("check", *overrides(words, "limits.clipped=0.9", "limits.longest_s=0.7"))
    assert answer.code == 3 and "clipped: " not in answer.out and "too long: 0.8 s" in answer.out
    las("check", *overrides(words, "limits.longest=1")).fails(2, "limits.longest=1")


def test_check_reads_everything_every_time_and_trainings_only_what_they_do_not_know(
    words: Path, las: Las, reads: list[str]
) -> None:
    for total in (12, 24):
        assert las("check", *overrides(words)).code == 0 and len(reads) == total
    reads.clear()
    assert las("prepare", *overrides(words)).code == 0 and reads == []
    os.utime(wav(words, name("train", 3)))
    assert las("train", *overrides(words)).code == 0 and reads == [name("train", 3)]


def test_prepare_prints_a_table_and_what_stands_out_in_100_columns(tmp_path: Path, las: Las) -> None:
    tree(tmp_path, [*TRAIN, "STOP STOP STOP STOP STOP STOP STOP", "A"])
    answer = las("prepare", *overrides(tmp_path)).succeeds()
    for heading in ("split", "utterances", "hours", "speakers", "symbols", "shortest s", "longest s"):
        assert heading in answer.out
    assert re.search(r"train +. +10 . +0\.00 . +1 . +\d+ . +0\.50 . +0\.85 ", answer.out)
    worst = answer.out.index(f"  {name('train', 8)}: 34 symbols in 0.50 s, 68.0 symbols/s")
    assert answer.out.index("train: 2 of 10") < worst
    assert worst < answer.out.index(f"  {name('train', 9)}: 1 symbols in 0.55 s, 1.8 symbols/s")
    assert max(len(line) for line in answer.out.splitlines() if "a partial copy" not in line) <= 100


def test_pieces_are_learned_when_the_corpus_is_prepared_and_travel_with_the_run(
    words: Path, las: Las, tmp_path: Path
) -> None:
    answer = las("train", *overrides(words, *PIECES)).succeeds()
    result = json.loads((words / "run/result.json").read_text())
    symbols = json.loads((words / "run/symbols.json").read_text())
    assert f"17 symbols (vocabulary {result['vocabulary_hash'][:12]})" in answer.out
    assert symbols["vocabulary_hash"] == result["vocabulary_hash"] and len(symbols["symbols"]) == 17
    found, _ = checkpoint.find(words / "run")
    kind = from_state(found.state["corpus"]["tokens"])
    assert isinstance(kind, SentencePieces) and kind.vocabulary_hash == result["vocabulary_hash"]
    (model,) = words.glob("data/manifests/an4-*/bpe-16-*.model")
    assert SentencePieces(model).symbols == kind.symbols
    # Decoding takes the pieces of the checkpoint, also where those of the corpus would be others by now.
    tree(words, ["A B C D E F G", *TRAIN[1:]])
    decoded = tmp_path / "decoded.jsonl"
    answer = las(
        "decode", f"checkpoint={words / 'run'}", "split=test", f"data_dir={words / 'data'}", f"output={decoded}"
    ).succeeds()
    las("decode", f"checkpoint={words / 'run'}", f"audio={wav(words, 'fccc_0')}", f"output={decoded}").succeeds()


def test_neither_bad_audio_nor_bad_texts_change_the_pieces(tmp_path: Path, las: Las) -> None:
    """Nor does another place."""
    found = []
    for place, texts in (("clean", TRAIN), ("spoilt", [*TRAIN, "", "GO\0ON", "E\u0301"])):
        root = tree(tmp_path / place, texts)
        if place == "spoilt":
            wav(root, name("train", 0)).write_bytes(b"")
        las("prepare", *overrides(root, *PIECES))
        (model,) = root.glob("data/manifests/an4-*/*.model")
        found.append(SentencePieces(model).symbols)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("more", "code", "says"),
    rest_slow(
        [
            ("corpus.tokens.size=500", 3, "500 bpe largest"),
            ("corpus.tokens.size=3", 3, "3 smallest"),
            ("corpus.tokens.size=0", 2, "corpus.tokens.size=0 1"),
            ("corpus.tokens.model_type=bpee", 2, "bpe"),
            ("corpus.tokens.sise=3", 2, "corpus.tokens.size"),
            ("tokens@corpus.tokens=bpe_1", 2, "bpe_1k"),
            ("corpus.tokens=bpe_1k", 2, "tokens@corpus.tokens=bpe_1k"),
        ],
        keep=3,
    ),
)
def test_pieces_that_cannot_be_learned_say_why(more: str, code: int, says: str, words: Path, las: Las) -> None:
    given = [more] if "tokens@" in more else [PIECES[0], more]
    las("prepare", *overrides(words, *given)).fails(code, says)


def test_what_ctc_cannot_align_is_named_before_a_training_and_left_out_of_it(
    tmp_path: Path, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(8):
        sound(tmp_path / f"{number}.wav", 0.4 + 0.01 * number, number)
    texts = ["ab ab", "ba", "aabbaabb", "abababab"]
    rows = "".join(f"{number}.wav,{texts[number % 4]}\n" for number in range(8))
    (tmp_path / "all.csv").write_text(f"audio,text\n{rows}")
    given = ["corpus=files", "corpus.train=all.csv", "corpus.dev=all.csv", "corpus.test_share=0", *MODEL]
    answer = las("check", *given).fails(3, "2 16")
    assert answer.out.count("between 4 equal") == 4 and "│ CTC     │     2 │   2 │" in answer.out
    answer = las("train", *given, *SHORT, *QUICK, "trainer.max_bad_fraction=0.5", "run_dir=run")
    assert answer.code == 0 and answer.out.count("left out of") == answer.out.count("between 4 equal") == 2
    answer = las("check", *given, "model=las_small")
    assert (answer.code, answer.err) == (0, "") and "all 16 utterances" in answer.out
