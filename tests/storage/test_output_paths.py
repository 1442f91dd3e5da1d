"""Where decode leaves hypotheses: in the run folder, named by what was decoded, and never one in place of another."""

import os
from pathlib import Path

import pytest
from console import Answer, Las
from tiny import sound, wav


def written(answer: Answer) -> Path:
    """The file that the last line names."""
    assert answer.code == 0, answer.err
    return Path(answer.out.splitlines()[-1].partition(" written to ")[2])


def test_hypotheses_go_into_the_run_folder_named_by_what_was_decoded(
    trained: Path, trained_copy: Path, las: Las, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    for folder in ("a", "b"):
        (here / folder).mkdir(parents=True)
        sound(here / folder / "x y.wav", 0.3)
    monkeypatch.chdir(here)
    common = ["decode", f"checkpoint={trained_copy}", f"data_dir={trained / 'data'}", "search=greedy"]
    own = {path: path.read_bytes() for path in trained_copy.glob("hypotheses.*")}
    asked = ["split=test", "split=dev", "audio=a/x y.wav", "audio=b/x y.wav", "audio=a", "audio=[a,b]"]
    files = [written(las(*common, each)) for each in asked]
    names = [path.relative_to(trained_copy / "decoded").as_posix() for path in files]
    assert names[:2] == ["hypotheses.test.jsonl", "hypotheses.dev.jsonl"]
    assert [name.rpartition("-")[0] for name in names[2:]] == [
        f"hypotheses.{name}" for name in ("x_y.wav", "x_y.wav", "a", "a_and_1_more")
    ]
    assert len(set(files)) == len(files) and all(path.is_file() for path in files)
    assert written(las(*common, asked[2])) == files[2]  # the same again
    assert sorted(os.listdir(here)) == ["a", "b"]
    assert {path: path.read_bytes() for path in trained_copy.glob("hypotheses.*")} == own
    assert files[0].read_bytes() == own[trained_copy / "hypotheses.test.jsonl"]


def test_one_checkpoint_of_a_run_apart_from_another(trained_copy: Path, trained: Path, las: Las) -> None:
    steps = sorted((trained_copy / "checkpoints").glob("step-*"))
    audio = f"audio={wav(trained, 'mdab0_sx0')}"
    for step in steps:
        file = written(las("decode", f"checkpoint={step}", audio, "search=greedy"))
        assert file.parent == trained_copy / "decoded" / step.name
    assert len(steps) == 2
    las("decode", f"checkpoint={trained_copy}", "audio=[]").fails(2, "audio=[]")


def test_a_bundle_has_them_beside_it(trained: Path, las: Las, tmp_path: Path) -> None:
    assert las("export", f"checkpoint={trained / 'run'}", f"output={tmp_path / 'phones.las'}").code == 0
    audio = f"audio={wav(trained, 'mdab0_sx0')}"
    file = written(las("decode", f"checkpoint={tmp_path / 'phones.las'}", audio, "search=greedy"))
    assert file.parent == tmp_path / "phones.decoded" and file.name.startswith("hypotheses.SX0.WAV-")


@pytest.mark.parametrize(
    ("verb", "others", "says"),
    [
        ("decode", ("audio=a.wav",), "must end in .jsonl"),
        ("rescore", ("hypotheses=a.jsonl", "language_model=lm.arpa"), "must end in .jsonl"),
        ("rover", ("hypotheses=[a.jsonl,b.jsonl]",), "must end in .jsonl or .trn"),
        ("align", ("corpus=synthetic",), "must end in .ctm or .TextGrid"),
        ("transcribe", ("input=x.wav",), "no format has this suffix. Did you mean jsonl"),
    ],
)
def test_a_name_that_says_another_format_is_refused(
    verb: str, others: tuple[str, ...], says: str, trained: Path, las: Las, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sound(tmp_path / "x.wav", 0.3)
    given = [f"checkpoint={trained / 'run'}"] if verb in ("decode", "transcribe") else []
    answer = las(verb, *given, *others, "output=x.json")
    assert answer.code == 2 and "output=x.json" in answer.err and says in answer.err, answer
    assert sorted(os.listdir(tmp_path)) == ["x.wav"]


def test_a_folder_may_be_named_as_a_file_is(trained: Path, las: Las, tmp_path: Path) -> None:
    given = ["transcribe", f"checkpoint={trained / 'run'}", f"input={wav(trained, 'mdab0_sx0')}", "search=greedy"]
    for output in ("texts.json/", "texts.json", "2026.11.30", "texts.v2"):
        assert las(*given, f"output={tmp_path / output}{'/' * output.endswith('/')}").code == 0
    assert sorted(os.listdir(tmp_path)) == ["2026.11.30", "texts.json", "texts.v2"]
