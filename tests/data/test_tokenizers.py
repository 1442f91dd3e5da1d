"""Decoding undoes encoding, id 0 is the boundary, and the three folded phone sets agree with each other."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from las.data import tokenizers
from las.data.tokenizers import (
    Characters,
    Phones,
    SentencePieces,
    TrainedSentencePieces,
    from_state,
    train_sentence_pieces,
)
from las.runtime.errors import LasError
from las.scoring import phones

ALPHABET = " 'ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEXTS = ["the cat sat on the mat", "a dog sat on a log", "that hat that the cat had"]
WORDS = sorted(set(" ".join(TEXTS).split()))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieces:
    return train_sentence_pieces(TEXTS, tmp_path_factory.mktemp("pieces") / "words.model", 20, "bpe")


def test_folding_goes_down_in_steps_and_stays_where_it_is() -> None:
    for label in phones.LABELS:
        once = phones.fold(label, 48)
        assert (once is None) == (label == "q")
        assert phones.fold(label, 39) == (None if once is None else phones.fold(once, 39))
        assert phones.fold(label, 61) == label
    for size in phones.SIZES:
        symbols = phones.phone_set(size)
        assert all(phones.fold(phone, size) == phone for phone in symbols)
        assert len(set(symbols)) == len(symbols) == size == Phones(phone_set=size).size - 1
    assert {phones.fold(label, 39) for label in phones.LABELS} - {None} == set(phones.phone_set(39))
    rows = {"ax-h": ("ax", "ah"), "gcl": ("vcl", "sil"), "kcl": ("cl", "sil"), "zh": ("zh", "sh")}
    assert {label: (phones.fold(label, 48), phones.fold(label, 39)) for label in rows} == rows


def test_unknown_phones_and_sets_are_named() -> None:
    refused("'ahh'|Did you mean|ah", phones.fold, "ahh", 39)
    refused("40 phones", phones.phone_set, 40)
    refused("40 phones", phones.fold, "aa", 40)


@given(st.lists(st.sampled_from(phones.phone_set(48))), st.text(ALPHABET), st.lists(st.sampled_from(WORDS)))
def test_texts_round_trip(pieces: SentencePieces, spoken: list[str], text: str, words: list[str]) -> None:
    for kind, each in ((Phones(48), " ".join(spoken)), (Characters(ALPHABET), text), (pieces, " ".join(words))):
        assert kind.decode(kind.encode(each)) == each
    assert len(Phones(48).encode(" ".join(spoken))) == len(spoken)
    assert len(Characters(ALPHABET).encode(text)) == len(text)


def test_the_parts_of_words_make_the_words(pieces: SentencePieces) -> None:
    kinds = ((Phones(phone_set=39), "sil aa"), (Characters(ALPHABET), "AB CA"), (pieces, "the cat"))
    for kind, text in kinds:
        parts = [kind.word_part(symbol) for symbol in kind.split(text)]
        assert "".join(f"{' ' if part.begins else ''}{part.text}" for part in parts).split() == text.split()
        is_separated = isinstance(kind, Characters)  # a text does not begin with a space
        assert [part.may_lead for part in parts] == [part.begins and not is_separated for part in parts]


def test_the_boundary_is_id_0_and_no_text_contains_it(pieces: SentencePieces) -> None:
    for kind, text in ((Phones(phone_set=39), "sil aa"), (Characters(ALPHABET), "A B"), (pieces, "the cat")):
        assert kind.sos == kind.eos == 0
        assert kind.symbols[0] == tokenizers.BOUNDARY
        assert kind.size == len(kind.symbols) == len(set(kind.symbols))
        ids = kind.encode(text)
        assert ids and all(1 <= index < kind.size for index in ids)
        assert kind.decode([0, *ids, 0, 0]) == text
        assert kind.encode("") == []
        for outside in (-1, kind.size):
            with pytest.raises(ValueError, match="ids run from 0"):
                kind.decode([outside])


@pytest.mark.parametrize(
    ("text", "symbol"),
    [("sil aaa sil", "aaa"), (f"sil {tokenizers.BOUNDARY}", tokenizers.BOUNDARY), ("A b", "b"), ("A\0B", "\0"),
     ("CAF\u00c9", "\u00c9"), ("CAFE\u0301", "\u0301")],
)  # fmt: skip
def test_an_unknown_symbol_is_named_with_its_text(text: str, symbol: str) -> None:
    kind = Phones(phone_set=48) if text.startswith("sil") else Characters(ALPHABET)
    refused(f"symbol {symbol!r}|text {text!r}", kind.encode, text)
    assert kind.unknown(text)[0] == symbol and kind.unknown(kind.known(text)) == []


def test_sentence_pieces_never_write_unknown(pieces: SentencePieces) -> None:
    refused("symbol 'x'|text 'the xat'", pieces.encode, "the xat")
    assert not {"<unk>", "<s>"} & set(pieces.symbols)
    assert pieces.unknown("the xqat") == ["xq"] and pieces.known("the xqat") == "the at"


def test_states_are_json_and_give_the_same_tokens(pieces: SentencePieces) -> None:
    for kind in (Phones(phone_set=48), Phones(symbols=["a", "b"]), Characters(ALPHABET), pieces):
        again = from_state(json.loads(json.dumps(kind.state())))
        assert (type(again), again.symbols, again.state()) == (type(kind), kind.symbols, kind.state())
    refused("Did you mean Phones", from_state, {"kind": "Phonez", "symbols": []})
    assert Characters("AB").vocabulary_hash == Phones(symbols=["A", "B"]).vocabulary_hash
    assert Characters("BA").vocabulary_hash != Characters("AB").vocabulary_hash


UNFIT: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: Phones(), "not both"),
    (lambda folder: Phones(phone_set=48, symbols=["a"]), "not both"),
    (lambda folder: Phones(symbols=["a", "a"]), "'a'|more than once"),
    (lambda folder: Phones(symbols=[tokenizers.BOUNDARY]), "more than once"),
    (lambda folder: Characters(["a", "bc"]), "single characters|'bc'"),
    (lambda folder: SentencePieces(), "not both"),
    (lambda folder: SentencePieces(folder / "absent.model"), "absent.model"),
    (lambda folder: SentencePieces(folder / "x.model"), "x.model"),
    (lambda folder: SentencePieces(model_base64="*"), "model_base64"),
    (lambda folder: train_sentence_pieces(["ab"], folder / "y.model", 4000), "4000"),
    (lambda folder: learned(folder, texts=[]), "no text"),
    (lambda folder: TrainedSentencePieces(20).encode("the cat"), "las prepare"),
    (lambda folder: TrainedSentencePieces(10, "bep"), "bep|mean bpe"),
    (lambda folder: TrainedSentencePieces(0), "size=0"),
]


@pytest.mark.parametrize(("build", "says"), UNFIT)
def test_arguments_that_do_not_fit_are_refused(tmp_path: Path, build: Callable[[Path], object], says: str) -> None:
    (tmp_path / "x.model").write_bytes(b"not a model")
    refused(says, build, tmp_path, kind=LasError)
    assert not (tmp_path / "y.model").exists()


def learned(folder: Path, size: int = 20, texts: list[str] = TEXTS, model_type: str = "bpe") -> TrainedSentencePieces:
    kind = TrainedSentencePieces(size, model_type)
    kind.learn(texts, folder)
    return kind


def test_learned_pieces_are_those_of_the_texts_and_are_kept(pieces: SentencePieces, tmp_path: Path) -> None:
    kind = TrainedSentencePieces(20)
    settings = kind.settings()
    assert kind.size == 21
    kind.learn(TEXTS, tmp_path)
    assert kind.symbols == pieces.symbols and kind.settings() == settings
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".model", ".sha256"]
    again = from_state(json.loads(json.dumps(kind.state())))
    assert type(again) is SentencePieces and again.symbols == kind.symbols
    (path,) = tmp_path.glob("*.model")
    assert SentencePieces(path).vocabulary_hash == pieces.vocabulary_hash


def test_what_was_learned_is_taken_as_long_as_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = learned(tmp_path)
    (path,) = tmp_path.glob("*.model")
    content, trainings, train = path.read_bytes(), [], tokenizers.train_sentence_pieces
    monkeypatch.setattr(tokenizers, "train_sentence_pieces", lambda *given: trainings.append(given) or train(*given))
    assert learned(tmp_path).symbols == first.symbols and trainings == []
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damage in (bytes(flipped), content[:-1], b""):
        path.write_bytes(damage)
        assert learned(tmp_path).symbols == first.symbols
    assert len(trainings) == 3
    learned(tmp_path, texts=[*TEXTS, "the dog had a hat"])
    learned(tmp_path, size=18)
    learned(tmp_path, size=15, model_type="unigram")
    assert len(list(tmp_path.glob("*.model"))) == 4


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_unk_in_texts_is_a_piece_and_changes_no_other_model(model_type: str, tmp_path: Path) -> None:
    texts = [*TEXTS, "<unk> the cat", "the<unk>cat <unk>"]
    kind = learned(tmp_path, 16 if model_type == "unigram" else 20, texts, model_type)
    assert kind.symbols.count("<unk>") == 1
    for text in texts:
        assert kind.unknown(text) == [] and kind.decode(kind.encode(text)) == text
        assert from_state(kind.state()).encode(text) == kind.encode(text)
    assert "<unk>" not in learned(tmp_path).symbols


@pytest.mark.parametrize("model_type", tokenizers.MODEL_TYPES)
def test_a_size_that_does_not_fit_the_texts_says_which_does(model_type: str, tmp_path: Path) -> None:
    for size, which, beyond in ((4000, "largest", 1), (2, "smallest", -1)):
        message = refused(f"{size} {model_type}|3 texts", lambda: learned(tmp_path, size, model_type=model_type))  # noqa: B023
        (found,) = map(int, re.findall(rf"the {which} possible size is (\d+)", message))
        assert learned(tmp_path, found, model_type=model_type).size == found + 1
        refused(f"{which}|{found}", lambda: learned(tmp_path, found + beyond, model_type=model_type))  # noqa: B023


def test_long_texts_are_not_skipped(tmp_path: Path) -> None:
    """SentencePiece leaves out what is longer than 4192 bytes unless it is told otherwise."""
    kind = learned(tmp_path, texts=[*TEXTS, "xylophone " * 1000], size=30)
    assert kind.encode("xylophone")
