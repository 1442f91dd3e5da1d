"""Files of references and hypotheses, and a helpful answer to those that cannot be scored."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from las.data.manifest import Utterance, write
from las.runtime.errors import DataError
from las.scoring import transcript_files
from las.scoring.transcript_files import Transcript


@pytest.fixture
def make(tmp_path):
    def make_file(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return make_file


READ = {
    "she had your suit (cmh_sa01)\n\n  (1089-134686-0000)\r\ndon't  stop(x)\n": {
        "cmh_sa01": Transcript("she had your suit", "cmh"),
        "1089-134686-0000": Transcript("", "1089"),
        "x": Transcript("don't  stop", "x"),
    },
    ";; a title\n** (x)\ni { um / @ } (uh) see- it (u)\n; one semicolon (v)\n": {
        "u": Transcript("i { um / @ } (uh) see- it", "u"),
        "v": Transcript("; one semicolon", "v"),
    },
    # The speaker ends at a hyphen or else at an underscore.
    "x (a_b-1)\nx (a-b_1)\nx (a_b_1)\nx (4t0c0201)\nx (-1)\n": {
        name: Transcript("x", speaker)
        for name, speaker in (("a_b-1", "a_b"), ("a-b_1", "a"), ("a_b_1", "a"), ("4t0c0201", "4t0c0201"), ("-1", ""))
    },
}


@pytest.mark.parametrize("text", READ)
def test_trn_lines_are_words_then_an_id_whose_first_part_is_the_speaker(make, text):
    assert transcript_files.read(make("a.trn", text)) == READ[text]


def test_ids_without_case(make):
    path = make("a.trn", "a (Ab_1)\nb (É_2)\n")
    assert list(transcript_files.read(path)) == ["Ab_1", "É_2"]
    assert list(transcript_files.read(path, ignore_case=True)) == ["ab_1", "É_2"]
    twice = make("b.trn", "a (Ab_1)\nb (aB_1)\n")
    assert len(transcript_files.read(twice)) == 2
    with pytest.raises(DataError, match=r"b.trn:2: .*'ab_1' .*line 1"):
        transcript_files.read(twice, ignore_case=True)


texts = st.lists(
    st.sampled_from(["a", "don't", "É", ";", "a;b", "(uh)", "{ a / @ }", "/", "}", "\u2028", "(x y)"])
).map(" ".join)
names = st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters="()"), min_size=1)


@given(texts=st.dictionaries(names, texts, min_size=1))
def test_any_text_and_id_are_read_as_they_were_written(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("trn") / "a.trn"
    path.write_text("".join(f"{text} ({name})\n" for name, text in texts.items()), "utf-8")
    assert {name: transcript.text for name, transcript in transcript_files.read(path).items()} == texts


def test_jsonl_reads_manifests_and_hypotheses(make, tmp_path):
    write(tmp_path / "m.jsonl", [Utterance("u1", "a.wav", 0, 0.0, 1.0, "ae b", "mary")])
    assert transcript_files.read(tmp_path / "m.jsonl") == {"u1": Transcript("ae b", "mary")}
    path = make("h.jsonl", '{"id": "u1", "text": "ae\u2028 d", "score": -1.5}\n')
    assert transcript_files.read(path) == {"u1": Transcript("ae\u2028 d", None)}


BAD = [
    ("a.trn", "one two\n", ":1: .*utterance id"),
    ("a.trn", "ok (a)\n\nwords ()\n", ":3: "),
    ("a.trn", "a (u)\nb (u)\n", ":2: .*'u' .*line 1"),
    ("a.trn", "ok (a)\ni { um / @ see (u)\n", ":2: .*no closing }"),
    ("a.trn", "i { / } see (u)\n", ":1: .*no word"),
    ("a.trn", "i x{um} see (u)\n", r":1: .*x\{um}"),
    ("a.trn", ";; nothing (u)\n** but (v)\n", ": .*no utterances"),
    ("a.trn", "\n", ": .*no utterances"),
    ("a.trn", b"fine (a)\ncaf\xe9 (b)\n", ":2: not UTF-8"),
    ("a.jsonl", '{"id": "u", "text": "a"}\n{"id": 1}\n', ":2: .*with id as"),
    ("a.jsonl", '{"id": "u"}\n', ":1: .*with text as"),
    ("a.jsonl", "[1]\n", ":1: expected an object"),
    ("a.jsonl", "{oops\n", ":1: .*JSON"),
    ("a.jsonl", '{"id": "u", "text": "a", "speaker": 3}\n', ":1: speaker.* 3"),
    ("a.txt", "one (u)\n", ": .*.trn or .jsonl"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_a_bad_file_is_named_with_its_line(make, name, content, message):
    with pytest.raises(DataError, match=name + message):
        transcript_files.read(make(name, content), reference=True)


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    (tmp_path / "folder.trn").mkdir()
    for name, says in (("none.trn", "No such file"), ("folder.trn", "a folder")):
        with pytest.raises(DataError, match=f"{name}: .*{says}"):
            transcript_files.read(tmp_path / name)
