"""Files of references and hypotheses, and a helpful answer to those that cannot be scored."""

import pytest

from las.errors import DataError
from las.manifest import Utterance, write
from las.scoring import files
from las.scoring.files import Transcript


@pytest.fixture
def make(tmp_path):
    def make_file(name: str, text: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return make_file


def test_trn_lines_are_words_then_an_id_whose_first_part_is_the_speaker(make):
    path = make("a.trn", "she had your suit (cmh_sa01)\n\n  (1089-134686-0000)\r\ndon't  stop(x)\n")
    assert files.read(path) == {
        "cmh_sa01": Transcript("she had your suit", "cmh"),
        "1089-134686-0000": Transcript("", "1089"),
        "x": Transcript("don't  stop", "x"),
    }


def test_jsonl_reads_manifests_and_hypotheses(make, tmp_path):
    write(tmp_path / "m.jsonl", [Utterance("u1", "a.wav", 0, 0.0, 1.0, "ae b", "mary")])
    assert files.read(tmp_path / "m.jsonl") == {"u1": Transcript("ae b", "mary")}
    path = make("h.jsonl", '{"id": "u1", "text": "ae\u2028 d", "score": -1.5}\n')
    assert files.read(path) == {"u1": Transcript("ae\u2028 d", None)}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.trn", "one two\n", r"a.trn:1: the line does not end in an utterance id"),
        ("a.trn", "ok (a)\n\nwords ()\n", r"a.trn:3: "),
        ("a.trn", "a (u)\nb (u)\n", r"a.trn:2: utterance 'u' is already on line 1"),
        ("a.trn", "i { um / @ } see (u)\n", r"a.trn:1: alternatives .*'{'"),
        ("a.trn", "i am (not) here (u)\n", r"a.trn:1: .*'\(not\)'"),
        ("a.trn", "\n", r"a.trn: the file has no utterances"),
        ("a.trn", b"fine (a)\ncaf\xe9 (b)\n", r"a.trn:2: not UTF-8 text.*iconv"),
        ("a.jsonl", '{"id": "u", "text": "a"}\n{"id": 1}\n', r"a.jsonl:2: expected an object with id as text"),
        ("a.jsonl", '{"id": "u"}\n', r"a.jsonl:1: expected an object with text as text"),
        ("a.jsonl", "[1]\n", r"a.jsonl:1: expected an object"),
        ("a.jsonl", "{oops\n", r"a.jsonl:1: not a line of JSON"),
        ("a.jsonl", '{"id": "u", "text": "a", "speaker": 3}\n', r"a.jsonl:1: speaker has the value 3"),
        ("a.txt", "one (u)\n", r"a.txt: .*must end in .trn or .jsonl"),
    ],
)
def test_a_bad_file_is_named_with_its_line(make, name, content, message):
    with pytest.raises(DataError, match=message):
        files.read(make(name, content))


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none.trn: cannot be read \(No such file"):
        files.read(tmp_path / "none.trn")
    (tmp_path / "folder.trn").mkdir()
    with pytest.raises(DataError, match=r"folder.trn: cannot be read"):
        files.read(tmp_path / "folder.trn")
