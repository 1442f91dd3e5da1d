"""The verb `score`: files in, a rate out, by named conventions, for one system or two."""

import hashlib
import json
from pathlib import Path

import pytest

from las.cli import score
from las.runtime.errors import DataError

COUNTS = ("substitutions", "deletions", "insertions", "correct", "words", "utterances", "wer")


@pytest.fixture
def make(tmp_path):
    def make_file(name: str, text: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return str(path)

    return make_file


@pytest.fixture
def words(make):
    reference = make("ref.trn", "the cat sat (mary_1)\nOn the mat (john_1)\n")
    hypothesis = make("hyp.trn", "the hat sat (mary_1)\non the (john_1)\n")
    return [f"reference={reference}", f"hypothesis={hypothesis}"]


def test_words(words, capsys):
    result = score.score(words)
    assert {key: result[key] for key in COUNTS} == dict(zip(COUNTS, (1, 1, 0, 4, 6, 2, 2 / 6), strict=True))
    assert result["convention"] == "nist"
    assert result["speakers"]["john"] | {"deletions": 1, "words": 3} == result["speakers"]["john"]
    assert result["speakers"].keys() == {"john", "mary"} and result["subsets"] == {}
    assert result["cer"] == pytest.approx((1 + 4) / (11 + 10))
    assert result["confusions"] == [["cat", "hat", 1]]
    printed = capsys.readouterr().out
    assert "WER 33.3 %" in printed and "CER 23.8 %" in printed
    assert score.score([*words, "ignore_case=false"])["substitutions"] == 2


def test_optional_words_fragments_and_silences_are_asked_for(make):
    words = [f"reference={make('a.trn', 'i (uh) wan- this (x)')}", f"hypothesis={make('b.trn', 'i wanted this (x)')}"]
    assert score.score(words)["correct"] == 2
    assert score.score([*words, "optional_words=true"])["deletions"] == 0
    assert score.score([*words, "optional_words=true", "fragments=true"])["wer"] == 0
    phones = [f"reference={make('c.trn', 'h# ix tcl t h# (x)')}", f"hypothesis={make('d.trn', 'ih sil t (x)')}"]
    assert score.score([*phones, "convention=timit_optional_silence"])["deletions"] == 0


SIGNS = "mail me @ {home / (now) a;b c* and/or x{y"


@pytest.mark.parametrize("name", ["h.jsonl", "h.trn"])
def test_markup_is_read_from_no_hypothesis_and_no_plain_reference(make, name):
    """`@` in a plain reference is a word; a hypothesis equal to it is right, one of other signs has their errors."""
    plain = make("r.jsonl", json.dumps({"id": "a", "text": SIGNS}) + "\n")
    text = {"h.jsonl": '{{"id": "a", "text": "{}"}}\n', "h.trn": "{} (a)\n"}[name]
    result = score.score([f"reference={plain}", f"hypothesis={make(name, text.format(SIGNS))}"])
    assert (result["wer"], result["words"], result["cer"]) == (0, len(SIGNS.split()), 0)
    result = score.score([f"reference={plain}", f"hypothesis={make(name, text.format('mail me home'))}"])
    assert (result["substitutions"], result["deletions"], result["correct"]) == (1, 7, 2)
    marked = make("r.trn", "mail { me / you } (a)\n")
    result = score.score([f"reference={marked}", f"hypothesis={make(name, text.format('mail { me / you }'))}"])
    assert (result["correct"], result["insertions"]) == (2, 4)


def test_phones_are_recognised_and_folded_to_39(make, capsys):
    reference = make("ref.jsonl", '{"id": "a", "text": "h# ix q tcl t h#", "speaker": "mary"}\n')
    hypothesis = make("hyp.jsonl", '{"id": "a", "text": "sil ih cl d sil"}\n')
    result = score.score([f"reference={reference}", f"hypothesis={hypothesis}"])
    assert result["convention"] == "timit_kaldi"
    assert result["phone_error_rate"] == result["wer"] == 1 / 5
    assert result["words"] == 5 and "cer" not in result
    assert result["confusions"] == [["t", "d", 1]]
    assert "PER 20.0 %" in capsys.readouterr().out


MISTAKES = [
    ("silences", "convention=timit_glottal", 3, "a.trn: 'x': corpus.phone_set=61"),
    ("words", "convention=timit_kaldi", 3, "ref.trn: 'mary_1': 'the' convention=nist"),
    ("words", "convention=timit_kaldy", 2, "timit_kaldi"),
    ("words", "fragments=maybe", 2, "fragments='maybe'"),
    ("words", "hypothesis=???", 2, "hypothesis"),
    ("words", "konvention=nist", 2, "'konvention' convention"),
    ("words", "glm=x.glm", 2, ".ctm .stm"),
    ("calls", "convention=nist", 2, "convention=nist"),
    ("calls", "convention=hub5 glm=null", 2, "convention=hub5"),
    ("calls", "convention=hub", 2, "hub5"),
    ("calls", "convention=timit_kaldi", 2, ".stm"),
]
"""Files, further arguments, exit code, and key words of the error."""


@pytest.mark.parametrize(("files", "more", "code", "says"), MISTAKES)
def test_mistakes_are_named(request, make, las, files, more, code, says):
    silences = [f"reference={make('a.trn', 'sil ih sil (x)')}", f"hypothesis={make('b.trn', 'sil ih (x)')}"]
    given = silences if files == "silences" else request.getfixturevalue(files)
    las("score", *given, *more.split()).fails(code, says)


def test_two_systems_are_compared(words, make, capsys):
    text = "the cat sat (mary_1)\non the mat (john_1)\n"
    result = score.score([*words, f"compare='{make('other system.trn', text)}'"])
    second = result["compare"]
    assert (result["wer"], second["wer"], second["difference"]) == (2 / 6, 0, -2 / 6)
    assert second["tests"].keys() == {"mapsswe", "sign", "wilcoxon", "mcnemar"}
    assert second["tests"]["mcnemar"] == {"pairs": 2, "statistic": 2, "p": 0.5, "sc_stats_p": 0.5}
    assert second["fewer_errors_in_resampled_tests"] == 1
    shown = capsys.readouterr().out
    assert all(each in shown for each in ("other system.trn", "33.33 points", "(-100.0 %)", "McNemar"))
    other = make("other/hyp.trn", text)  # files of one name are shown with their folders
    score.score([*words, f"compare={other}"])
    assert f"{other} is " in capsys.readouterr().out


def test_json_is_one_object_and_nothing_else(words, make, capsys, tmp_path):
    output = tmp_path / "deep" / "score.json"
    other = make("other.trn", "the cat sat (mary_1)\non the mat (john_1)\n")
    result = score.score([*words, f"compare={other}", "json=true", f"output={output}"])
    assert json.loads(capsys.readouterr().out) == result == json.loads(output.read_text())
    assert [path.name for path in output.parent.iterdir()] == ["score.json"]
    assert all(key in result["compare"] for key in COUNTS)


def test_a_run_folder_stands_for_its_hypotheses_of_the_same_split(make, words, tmp_path):
    make("run/hypotheses.dev.jsonl", '{"id": "else_1", "text": "a"}\n')
    make(
        "run/hypotheses.test.jsonl", '{"id": "mary_1", "text": "the cat sat"}\n{"id": "john_1", "text": "on the mat"}\n'
    )
    arguments = [words[0], f"hypothesis={tmp_path / 'run'}"]
    assert score.score(arguments)["wer"] == 0
    make("run/hypotheses.dev.jsonl", '{"id": "mary_1", "text": "a"}\n')
    with pytest.raises(DataError, match=r"hypotheses.dev.jsonl, hypotheses.test.jsonl"):
        score.score(arguments)
    (tmp_path / "run/hypotheses.test.jsonl").unlink()
    make("run/hypotheses.dev.jsonl", '{"id": "else_1", "text": "a"}\n')
    with pytest.raises(DataError, match=r"found: hypotheses.dev.jsonl"):
        score.score(arguments)


@pytest.fixture
def calls(make):
    """One call of each kind, with a spelling that is mapped, an optional hesitation and an ignored segment."""
    reference = [
        "en_4156 A en_4156_A 0.0 2.0 <O,en> the WHATCHAMACALLIT (%hesitation)",
        "sw_4390 A sw_4390_A 0.0 2.0 <O,sw> okay",
        "sw_4390 A sw_4390_A 2.0 4.0 <O,sw> IGNORE_TIME_SEGMENT_IN_SCORING",
        "sw_4390 B sw_4390_B 0.0 2.0 <O,sw> i am here",
    ]
    words = ["A 0.1 0.2 the", "A 0.3 0.2 uh", "A 0.5 0.2 thing"]
    hypothesis = [f"en_4156 {word}" for word in words]
    words = ["A 0.1 0.2 ok", "A 2.5 0.2 ignored", "B 0.1 0.2 i'm", "B 0.5 0.2 here"]
    hypothesis += [f"sw_4390 {word}" for word in words]
    rules = [";; sclite glm", '* name = "small"', '* format = "NIST1"', '* max_nrules = "10"']
    mapped = {"[OKAY]": "[OK]", "[I'M]": "{I'M / I AM}", "[UH]": "[%HESITATION]"}
    rules += [f"{source} => {target} / [ ] __ [ ]" for source, target in mapped.items()]
    named = {"a.stm": reference, "b.ctm": hypothesis, "c.glm": rules}
    paths = [make(name, "\n".join(lines) + "\n") for name, lines in named.items()]
    return [f"{key}={path}" for key, path in zip(("reference", "hypothesis", "glm"), paths, strict=True)]


def counts(result: dict) -> tuple[int, ...]:
    return tuple(result[key] for key in ("correct", "substitutions", "deletions", "insertions", "utterances"))


def test_time_marks_are_scored_with_the_labels_as_subsets(calls):
    result = score.score(calls[:2])
    assert (result["convention"], counts(result)) == ("nist", (2, 4, 1, 0, 3))
    assert result["subsets"].keys() == {"O", "en", "sw"} and "glm" not in result
    assert result["subsets"]["sw"]["words"] == 4
    assert result["speakers"].keys() == {"en_4156_a", "sw_4390_a", "sw_4390_b"}


def test_mapping_rules_make_it_hub5(calls):
    result = score.score(calls)
    assert (result["convention"], counts(result)) == ("hub5", (6, 0, 1, 1, 3))
    assert {name: part["words"] for name, part in result["subsets"].items()} == {"CH": 3, "SWB": 4}
    sha256 = hashlib.sha256(Path(calls[2].partition("=")[2]).read_bytes()).hexdigest()
    assert result["glm"] == {"name": "small", "file": "c.glm", "sha256": sha256}


def test_hub5_as_kaldi_scores_it_leaves_noises_out_and_is_compared(calls):
    result = score.score([*calls, "convention=hub5_kaldi", calls[1].replace("hypothesis=", "compare=")])
    assert (result["convention"], counts(result)) == ("hub5_kaldi", (6, 1, 0, 0, 3))
    assert result["compare"]["difference"] == 0
    assert result["compare"]["tests"]["mapsswe"]["p"] == 1


def test_aligned_utterances_and_a_page_are_written(words, tmp_path):
    score.score([*words, f"alignments={tmp_path / 'a.txt'}", f"page={tmp_path / 'a.html'}"])
    assert (tmp_path / "a.txt").read_text().startswith("mary_1: 1 sub 0 del 0 ins of 3\n  reference   the  CAT  sat\n")
    assert "<title>hyp.trn</title>" in (tmp_path / "a.html").read_text()
