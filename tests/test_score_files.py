"""The verb `score`: files in, a rate out, and a helpful answer to files that cannot be scored."""

import json
import subprocess
import sys

import pytest

from las import score
from las.errors import ConfigError, DataError
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


@pytest.fixture
def words(make):
    reference = make("ref.trn", "the cat sat (mary_1)\nOn the mat (john_1)\n")
    hypothesis = make("hyp.trn", "the hat sat (mary_1)\non the (john_1)\n")
    return [f"reference={reference}", f"hypothesis={hypothesis}"]


@pytest.fixture
def phones(make):
    reference = make("ref.jsonl", '{"id": "a", "text": "h# ix q tcl t h#", "speaker": "mary"}\n')
    hypothesis = make("hyp.jsonl", '{"id": "a", "text": "sil ih cl d sil"}\n')
    return [f"reference={reference}", f"hypothesis={hypothesis}"]


def test_words(words, capsys):
    result = score.score(words)
    assert (result["substitutions"], result["deletions"], result["insertions"]) == (1, 1, 0)
    assert result["wer"] == pytest.approx(2 / 6)
    assert result["speakers"]["john"]["deletions"] == 1
    assert result["confusions"] == [["cat", "hat", 1]]
    assert "WER 33.3 %" in capsys.readouterr().out


def test_case_matters_when_asked_for(words):
    assert score.score([*words, "ignore_case=false"])["substitutions"] == 2


def test_phones_are_recognised_and_folded_to_39(phones, capsys):
    result = score.score(phones)
    assert result["phone_error_rate"] == 1 / 5
    assert result["reference_tokens"] == 5
    assert result["confusions"] == [["t", "d", 1]]
    assert "PER 20.0 %" in capsys.readouterr().out
    unfolded = score.score([*phones, "metric=wer"])
    assert unfolded["reference_tokens"] == 6


def test_json_is_one_object_and_nothing_else(words, capsys, tmp_path):
    output = tmp_path / "deep" / "score.json"
    result = score.score([*words, "json=true", f"output={output}"])
    assert json.loads(capsys.readouterr().out) == result == json.loads(output.read_text())
    assert [path.name for path in output.parent.iterdir()] == ["score.json"]


def test_words_cannot_be_scored_as_phones(words):
    with pytest.raises(DataError, match=r"ref.trn: utterance 'mary_1': 'the' is not a TIMIT phone.*metric=wer"):
        score.score([*words, "metric=phone_error_rate"])


def test_an_unknown_metric_lists_the_known_ones(words):
    with pytest.raises(ConfigError, match=r"metric=per: .*phone_error_rate"):
        score.score([*words, "metric=per"])


def test_a_missing_file_name_and_an_unknown_key_are_errors(words):
    with pytest.raises(ConfigError, match="hypothesis has no value"):
        score.score(words[:1])
    with pytest.raises(ConfigError, match="Did you mean metric"):
        score.score([*words, "metrik=wer"])


def test_scoring_needs_no_torch():
    code = "import sys, las.score, las.scoring.error_rates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
