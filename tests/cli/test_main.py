"""The console command: quick help, exit codes, paths as they are, and scripts that are the same."""

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from console import Las
from places import REPOSITORY

from las.cli import main, train
from las.config import overrides
from las.runtime.errors import ConfigError, DataError, NumericalError, StorageError
from las.runtime.signals import UNREAD, Stopped

SCRIPTS = sorted((REPOSITORY / "scripts").glob("*.py"))


def python(*arguments: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, capture_output=True, text=True)


IMPORTING = "import sys; from las.cli.main import main; code = sum(map(main, {0})); print(code, {1} & {{*sys.modules}})"


def test_help_answers_at_once_and_imports_nothing_heavy() -> None:
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = python("-c", IMPORTING.format([["--help"]], {"torch", "hydra"}))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        assert answer.stdout.splitlines()[-1] == "0 set()"
    assert min(seconds) < 0.5


def test_scoring_listing_runs_and_showing_options_need_no_torch_and_doctor_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.trn").write_text("hello world (x_1)\n")
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/result.json").write_text("{}")
    commands = [["score", "reference=a.trn", "hypothesis=a.trn"], ["list", "cell"], ["show", "augment=small"], ["runs"]]
    answer = python("-c", IMPORTING.format(commands, {"torch"}), cwd=tmp_path)
    assert answer.stdout.splitlines()[-1] == "0 set()", answer.stderr
    assert "WER 0.0 %" in answer.stdout
    script = f"import las.cli.doctor; {IMPORTING.format([], {'torch', 'torchaudio', 'soundfile', 'hydra'})}"
    assert python("-c", script).stdout == "0 set()\n"


def test_help_names_every_verb(las: Las) -> None:
    for arguments in ([], ["-h"], ["--help"], ["help"]):
        answer = las(*arguments).succeeds()
        assert all(f"\n  las {name}" in answer.out and verb.help in answer.out for name, verb in main.VERBS.items())


@pytest.mark.parametrize("verb", main.VERBS)
def test_every_verb_explains_itself(verb: str, las: Las) -> None:
    answer = las(verb, "--help")
    assert answer.code == 0 and answer.err == ""
    assert answer.out.startswith(f"las {verb}: {main.VERBS[verb].help}")
    assert ("group=name" in answer.out) == bool(main.VERBS[verb].config)
    assert len(answer.out.splitlines()) > 3


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("command", ["--help", "list cell", "train --cfg job"])
def test_a_reader_that_ends_early_is_no_error(command: str, buffered: str, tmp_path: Path) -> None:
    """`las list cell | head -1`: what is printed after `head` has gone is dropped."""
    reader, writer = os.pipe()
    os.close(reader)
    called = [sys.executable, "-m", "las", *command.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    answer = subprocess.run(called, stdout=writer, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False)
    os.close(writer)
    assert (answer.returncode, answer.stderr) == (UNREAD, b"")


def test_version_and_unknown_verbs(las: Las) -> None:
    import las as package

    assert las("--version") == (0, f"las {package.__version__}\n", "")
    las("trian", "+experiment=baseline").fails(2, "'trian' train,")


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ConfigError("mistake"), 2, "mistake"),
        (DataError("mistake"), 3, "mistake"),
        (NumericalError("mistake"), 4, "mistake"),
        (StorageError("mistake"), 5, "mistake"),
        (OSError(28, "No space left on device", "/x/metrics.jsonl"), 5, "/x/metrics.jsonl: room run_dir=..."),
        (KeyboardInterrupt(), 130, "checkpoint"),
        (Stopped("stopped by SIGTERM"), 75, "SIGTERM checkpoint"),
    ],
)
def test_errors_become_exit_codes_and_words(
    error: BaseException, code: int, words: str, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(overrides: list[str]) -> None:
        raise error

    monkeypatch.setattr(train, "train", fail)
    answer = las("train").fails(code, f"train: {words}")
    assert answer.out == ""


@pytest.mark.parametrize("verb", main.VERBS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt(), Stopped("stopped by SIGTERM")], ids=["by hand", "by a signal"])
def test_a_verb_that_was_stopped_says_what_is_true_for_it(
    stop: BaseException, verb: str, las: Las, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(overrides: list[str]) -> None:
        raise stop

    monkeypatch.setattr(importlib.import_module(main.VERBS[verb].module), verb, interrupted)
    says = las(verb).err.strip().partition("; ")[2]
    trains = verb in ("train", "train_lm", "demo")
    assert ("last checkpoint" in says) == (trains or verb in ("reproduce", "analyze")), says
    expected = {"transcribe": "all recordings", "check": "left"}.get(verb, "same command")
    assert expected in says
    assert says.endswith("begins again") or verb not in ("decode", "tune", "score", "ngram", "average", "export")


def test_mistakes_of_the_program_keep_their_traceback(las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(overrides: list[str]) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(train, "train", fail)
    answer = las("train")
    assert answer.code == 1 and answer.err.startswith("Traceback") and "in fail\n" in answer.err
    assert answer.err.splitlines()[-2:][0] == "ZeroDivisionError"


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        ("audio=my file (1), take [2].wav", "audio='my file (1), take [2].wav'"),
        ("audio=it's.wav", "audio='it\\'s.wav'"),
        ("audio=[a.wav,b.wav]", "audio=[a.wav,b.wav]"),
        ("audio='quoted.wav'", "audio='quoted.wav'"),
        ("audio=null", "audio=null"),
        ("corpus.root=/a b", "corpus.root='/a b'"),
        ("corpus.train=Übung (1).csv", "corpus.train='Übung (1).csv'"),
        ("corpus.dev=kaldi,z20", "corpus.dev=kaldi,z20"),
        ("corpus.text.map={ß: ss, é:e}", "corpus.text.map=['ß: ss','é:e']"),
        ("corpus.text.drop=[ß,?]", "corpus.text.drop=['ß','?']"),
        ("corpus.text.drop=[]", "corpus.text.drop=[]"),
        ("corpus.text.drop=['?']", "corpus.text.drop=['?']"),
        ("optim.lr=0.1", "optim.lr=0.1"),
        ("+experiment=baseline", "+experiment=baseline"),
        ("audio", "audio"),
    ],
)
def test_paths_and_texts_need_no_quotes_of_the_override_grammar(given: str, passed_on: str) -> None:
    assert overrides.protect(given) == passed_on


def test_the_scripts_of_a_first_session_are_verbs_and_short() -> None:
    stations = {"prepare", "train", "decode", "score", "transcribe", "analyze", "reproduce", "demo"}
    assert {path.stem for path in SCRIPTS} == {*stations, "benchmark"} and stations <= set(main.VERBS)
    for path in SCRIPTS:
        assert len(path.read_text().splitlines()) <= 40
        assert f'sys.exit(main(["{path.stem}", *sys.argv[1:]]))' in path.read_text()


def test_a_script_prints_and_returns_what_its_verb_does(tmp_path: Path, las: Las) -> None:
    (tmp_path / "a.trn").write_text("a b (x_1)\n")
    good = [f"reference={tmp_path / 'a.trn'}", f"hypothesis={tmp_path / 'a.trn'}", "json=true"]
    for arguments, code in ((good, 0), (["refrence=x"], 2)):
        script = python("scripts/score.py", *arguments)
        assert (script.returncode, script.stdout, script.stderr) == las("score", *arguments)
        assert script.returncode == code
