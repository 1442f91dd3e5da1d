"""Decoding undoes encoding, id 0 is the boundary, and the three folded phone sets agree with each other."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.data import tokenizers
from las.data.tokenizers import (
    Characters,
    Phones,
    SentencePieces,
    Tokenizer,
    TrainedSentencePieces,
    from_state,
    train_sentence_pieces,
)
from las.runtime.errors import ConfigError, DataError
from las.scoring import phones

ALPHABET = " 'ABCDEFGHIJKLMNOPQRSTUVWXYZ"
TEXTS = ["the cat sat on the mat", "a dog sat on a log", "that hat that the cat had"]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> SentencePieces:
    return train_sentence_pieces(TEXTS, tmp_path_factory.mktemp("pieces") / "words.model", 20, "bpe")


@pytest.mark.parametrize(("size", "count"), [(61, 61), (48, 48), (39, 39)])
def test_a_phone_set_has_as_many_phones_as_its_name_says(size: int, count: int) -> None:
    symbols = phones.phone_set(size)
    assert len(symbols) == len(set(symbols)) == count
    assert Phones(phone_set=size).size == count + 1


def test_folding_goes_down_in_steps_and_stays_where_it_is() -> None:
    for label in phones.LABELS:
        once = phones.fold(label, 48)
        assert (once is None) == (label == "q")
        assert phones.fold(label, 39) == (None if once is None else phones.fold(once, 39))
        assert phones.fold(label, 61) == label
    for size in phones.SIZES:
        assert all(phones.fold(phone, size) == phone for phone in phones.phone_set(size))
    assert {phones.fold(label, 39) for label in phones.LABELS} - {None} == set(phones.phone_set(39))


@pytest.mark.parametrize(
    ("label", "in_48", "in_39"), [("ax-h", "ax", "ah"), ("gcl", "vcl", "sil"), ("kcl", "cl", "sil"), ("zh", "zh", "sh")]
)
def test_some_rows_of_the_table(label: str, in_48: str, in_39: str) -> None:
    assert (phones.fold(label, 48), phones.fold(label, 39)) == (in_48, in_39)


def test_unknown_phones_and_sets_are_named() -> None:
    with pytest.raises(DataError, match=r"'ahh' is not a TIMIT phone\. Did you mean .*\bah\b"):
        phones.fold("ahh", 39)
    for ask in (phones.phone_set, lambda size: phones.fold("aa", size)):
        with pytest.raises(DataError, match="no set of 40 phones"):
            ask(40)


@given(st.lists(st.sampled_from(phones.phone_set(48))))
def test_phones_round_trip(spoken: list[str]) -> None:
    text, kind = " ".join(spoken), Phones(phone_set=48)
    assert kind.decode(kind.encode(text)) == text
    assert len(kind.encode(text)) == len(spoken)


@given(st.text(ALPHABET))
def test_characters_round_trip_with_every_space(text: str) -> None:
    kind = Characters(ALPHABET)
    assert kind.decode(kind.encode(text)) == text
    assert len(kind.encode(text)) == len(text)


@given(st.lists(st.sampled_from(sorted(set(" ".join(TEXTS).split())))))
def test_sentence_pieces_round_trip(pieces: SentencePieces, words: list[str]) -> None:
    text = " ".join(words)
    assert pieces.decode(pieces.encode(text)) == text


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
    ("kind", "text", "symbol"),
    [
        (Phones(phone_set=48), "sil aaa sil", "aaa"),
        (Phones(phone_set=48), f"sil {tokenizers.BOUNDARY}", tokenizers.BOUNDARY),
        (Characters(ALPHABET), "A b", "b"),
        (Characters(ALPHABET), "A\0B", "\0"),
        (Characters(ALPHABET), "CAF\u00c9", "\u00c9"),
        (Characters(ALPHABET), "CAFE\u0301", "\u0301"),
    ],
)
def test_an_unknown_symbol_is_named_with_its_text(kind: Tokenizer, text: str, symbol: str) -> None:
    with pytest.raises(DataError, match="unknown symbol") as raised:
        kind.encode(text)
    assert f"unknown symbol {symbol!r} in the text {text!r}" in str(raised.value)


def test_sentence_pieces_never_write_unknown(pieces: SentencePieces) -> None:
    with pytest.raises(DataError, match="unknown symbol 'x' in the text 'the xat'"):
        pieces.encode("the xat")
    assert not {"<unk>", "<s>"} & set(pieces.symbols)


def test_states_are_json_and_give_the_same_tokens(pieces: SentencePieces) -> None:
    for kind in (Phones(phone_set=48), Phones(symbols=["a", "b"]), Characters(ALPHABET), pieces):
        again = from_state(json.loads(json.dumps(kind.state())))
        assert type(again) is type(kind)
        assert again.symbols == kind.symbols
        assert again.state() == kind.state()
    with pytest.raises(DataError, match="Did you mean Phones"):
        from_state({"kind": "Phonez", "symbols": []})


def test_the_same_texts_give_the_same_pieces(pieces: SentencePieces, tmp_path) -> None:
    again = train_sentence_pieces(TEXTS, tmp_path / "elsewhere.model", 20, "bpe")
    assert again.vocabulary_hash == pieces.vocabulary_hash
    assert SentencePieces(tmp_path / "elsewhere.model").symbols == pieces.symbols
    assert train_sentence_pieces(TEXTS, tmp_path / "fewer.model", 18, "bpe").vocabulary_hash != pieces.vocabulary_hash
    assert pieces.size == 21
    assert not list(tmp_path.glob(".*"))


def test_arguments_that_do_not_fit_are_refused(tmp_path) -> None:
    (tmp_path / "x.model").write_bytes(b"not a model")
    for build, says in (
        (lambda: Phones(), "not both"),
        (lambda: Phones(phone_set=48, symbols=["a"]), "not both"),
        (lambda: Phones(symbols=["a", "a"]), "more than once"),
        (lambda: Phones(symbols=[tokenizers.BOUNDARY]), "more than once"),
        (lambda: Characters(["a", "bc"]), "single characters"),
        (lambda: SentencePieces(), "not both"),
        (lambda: SentencePieces(tmp_path / "absent.model"), r"absent\.model"),
        (lambda: SentencePieces(tmp_path / "x.model"), "not a SentencePiece model"),
        (lambda: SentencePieces(model_base64="*"), "model_base64"),
        (lambda: train_sentence_pieces(["ab"], tmp_path / "y.model", 4000), "cannot learn 4000"),
    ):
        with pytest.raises(DataError, match=says):
            build()
    assert not (tmp_path / "y.model").exists()


def learned(folder: Path, size: int = 20, texts: list[str] = TEXTS, model_type: str = "bpe") -> TrainedSentencePieces:
    kind = TrainedSentencePieces(size, model_type)
    kind.learn(texts, folder)
    return kind


def test_learned_pieces_are_those_of_the_texts_and_are_kept(pieces: SentencePieces, tmp_path: Path) -> None:
    kind = learned(tmp_path)
    assert kind.symbols == pieces.symbols and kind.size == 21
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".model", ".sha256"]
    again = from_state(json.loads(json.dumps(kind.state())))
    assert type(again) is SentencePieces
    assert again.symbols == kind.symbols and again.vocabulary_hash == kind.vocabulary_hash


def test_what_was_learned_is_taken_as_long_as_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = learned(tmp_path)
    (path,) = tmp_path.glob("*.model")
    content = path.read_bytes()
    trainings = []
    train = tokenizers.train_sentence_pieces
    monkeypatch.setattr(tokenizers, "train_sentence_pieces", lambda *given: trainings.append(given) or train(*given))
    assert learned(tmp_path).symbols == first.symbols
    assert trainings == []
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    for damage in (bytes(flipped), content[:-1], b""):
        path.write_bytes(damage)
        assert learned(tmp_path).symbols == first.symbols
    assert len(trainings) == 3


def test_other_texts_or_settings_are_learned_anew(tmp_path: Path) -> None:
    learned(tmp_path)
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


def test_before_they_are_learned_pieces_have_a_size_and_no_symbols(tmp_path: Path) -> None:
    kind = TrainedSentencePieces(20)
    settings = kind.settings()
    assert kind.size == 21
    with pytest.raises(DataError, match="have not been learned"):
        kind.encode("the cat")
    kind.learn(TEXTS, tmp_path)
    assert kind.settings() == settings
    assert kind.decode(kind.encode("the cat")) == "the cat"


@pytest.mark.parametrize("model_type", tokenizers.MODEL_TYPES)
def test_a_size_that_does_not_fit_the_texts_says_which_does(model_type: str, tmp_path: Path) -> None:
    for size, which in ((4000, "largest"), (2, "smallest")):
        with pytest.raises(DataError, match=rf"cannot learn {size} {model_type} pieces from 3 texts") as raised:
            learned(tmp_path, size, model_type=model_type)
        found = re.search(rf"the {which} possible size is (\d+)", str(raised.value))
        assert found is not None
        assert learned(tmp_path, int(found[1]), model_type=model_type).size == int(found[1]) + 1
        beyond = int(found[1]) + (1 if which == "largest" else -1)
        with pytest.raises(DataError, match=f"the {which} possible size is {found[1]}"):
            learned(tmp_path, beyond, model_type=model_type)


def test_long_texts_are_not_skipped(tmp_path: Path) -> None:
    """SentencePiece leaves out what is longer than 4192 bytes unless it is told otherwise."""
    kind = learned(tmp_path, texts=[*TEXTS, "xylophone " * 1000], size=30)
    assert kind.encode("xylophone")


def test_pieces_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean bpe or unigram"):
        TrainedSentencePieces(10, "bep")
    with pytest.raises(ConfigError, match=r"size=0 must be at least 1"):
        TrainedSentencePieces(0)
    with pytest.raises(DataError, match="from 0 texts: there is no text in them"):
        learned(tmp_path, texts=[])


@pytest.mark.parametrize(
    ("kind", "text", "unknown", "known"),
    [
        (Phones(symbols=["a", "b"]), "a x b x", ["x", "x"], "a b"),
        (Characters("AB "), "A1 B", ["1"], "A B"),
        (Characters("AB"), "BA", [], "BA"),
    ],
)
def test_unknown_symbols_are_told_from_known_ones(kind: Tokenizer, text: str, unknown: list[str], known: str) -> None:
    assert (kind.unknown(text), kind.known(text)) == (unknown, known)


def test_pieces_tell_unknown_characters_from_the_rest(pieces: SentencePieces) -> None:
    assert pieces.unknown("the xqat") == ["xq"]
    assert pieces.known("the xqat") == "the at"


def test_equal_symbols_have_equal_hashes() -> None:
    assert Characters("AB").vocabulary_hash == Phones(symbols=["A", "B"]).vocabulary_hash
    assert Characters("BA").vocabulary_hash != Characters("AB").vocabulary_hash
