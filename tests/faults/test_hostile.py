"""Files and configs from outside: refused in words, and nothing of them is ever run, read or written.

They are opened in processes of their own with an audit hook, which hears of every process that is started, every
unpickling, every evaluated text and every file that is written.
"""

import copy
import importlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hostile
import pytest
from faults import STEPS, Tally, Training, sizes
from processes import SERVER
from tiny import vouch

from las.config import public
from las.config.build import build, compose
from las.data import manifest
from las.data.audio import files
from las.data.tokenizers import SentencePieces
from las.decoding import transcriber
from las.decoding.search import GreedySearch
from las.runtime.errors import ConfigError, LasError
from las.storage.checkpoint import FILES

FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "subprocess.Popen", "pickle.find_class")
FORBIDDEN += ("socket.connect", "ctypes.dlopen", "shutil.rmtree", "os.remove", "os.rename", "os.mkdir")
SECRET = "LAS_TEST_SECRET"

Finding = tuple[str, str]
"""What was tried, and what was wrong about it ("" for nothing)."""


def watched(body: Callable[..., list[Finding]], *arguments: Any) -> list[Finding]:
    """What `body` finds in a process of its own."""
    receiving, sending = SERVER.Pipe(duplex=False)
    process = SERVER.Process(target=_report, args=(sending, body, arguments))
    process.start()
    sending.close()
    found: list[Finding] = receiving.recv()
    process.join(60)
    assert process.exitcode == 0
    return found


def _report(sending: Any, body: Callable[..., list[Finding]], arguments: tuple[Any, ...]) -> None:
    sending.send(body(*arguments))


class Audit:
    """While it is entered, notes what is done that should not be."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.on = False
        sys.addaudithook(self._hear)

    def _hear(self, event: str, details: tuple[Any, ...]) -> None:
        if not self.on:
            return
        writing = event == "open" and isinstance(details[1], str) and set(details[1]) & set("wax+")
        evaluating = event == "compile" and details[1] in ("<string>", "<stdin>")
        if event in FORBIDDEN or writing or evaluating:
            self.heard.append(f"{event} {details!r}"[:200])

    def refused(self, attempt: Callable[[], Any], *errors: type[Exception]) -> str:
        """What is wrong about an attempt that should end in one of these errors and do nothing."""
        self.heard, self.on = [], True
        try:
            attempt()
            ending = "accepted"
        except errors:
            ending = ""
        except BaseException as error:
            ending = f"{type(error).__name__}: {error}"[:200]
        finally:
            self.on = False
        return "; ".join([*([ending] if ending else []), *self.heard])


OPENERS: dict[str, Callable[[Path], Any]] = {
    "wav": files.load,
    "flac": files.load,
    "sph": files.load,
    "jsonl": manifest.read,
    "model": SentencePieces,
}


def open_all(folder: Path, checkpoints: Path, count: int) -> list[Finding]:
    """Every hostile file under every name."""
    audit, found, mark = Audit(), [], folder / "mark"
    for module in ("sentencepiece", "soundfile"):  # what opening imports is not what is asked about
        importlib.import_module(module)
    transcriber.load(checkpoints / f"step-{STEPS:08d}", GreedySearch(), "cpu")
    for name, content in list(hostile.files(mark))[:: max(1, 50 // count)][:count]:
        for extension, opener in OPENERS.items():
            path = folder / f"file.{extension}"
            path.write_bytes(content)
            found.append((f"{name} as {path.name}", audit.refused(lambda o=opener, p=path: o(p), LasError)))
        for file in (*FILES, "MANIFEST.json"):
            directory = shutil.copytree(checkpoints / f"step-{STEPS:08d}", folder / "run" / "step-00000001")
            (directory / file).write_bytes(content)
            if file in FILES:
                vouch(directory, file)
            attempt = lambda d=directory: transcriber.load(d, GreedySearch(), "cpu")  # noqa: E731
            found.append((f"{name} as {file}", audit.refused(attempt, LasError)))
            shutil.rmtree(directory)
        if mark.exists():
            found.append((name, "was run"))
    return found


def count_all(tally: Tally, found: list[Finding]) -> None:
    for what, wrong in found:
        with tally.trial(what):
            assert not wrong, wrong


def believe(folder: Path) -> list[Finding]:
    """What each pickle does to those who unpickle it, and whether that is heard."""
    audit, found, mark = Audit(), [], folder / "mark"
    unpickle = importlib.import_module("pickle").loads
    for name, content in hostile.pickles(mark).items():
        heard = audit.refused(lambda c=content: unpickle(c))
        wrong = "" if mark.exists() and "pickle.find_class" in heard else f"harmless, or not heard: {heard}"
        found.append((name, wrong))
        mark.unlink(missing_ok=True)
    return found


@pytest.mark.slow
def test_the_hostile_files_are_hostile(tmp_path: Path) -> None:
    assert [each for each in watched(believe, tmp_path) if each[1]] == []


@pytest.mark.parametrize("count", sizes(8, 50, first=2))
def test_hostile_files(count: int, quiet: Training, tmp_path: Path, tally: Tally) -> None:
    count_all(tally, watched(open_all, tmp_path, quiet.run / "checkpoints", count))
    tally.close("F16 hostile files under each name that is opened")


class TargetRefused(ConfigError):
    """The error for a target that is not allowed; one for its arguments comes too late."""


def build_target(config: Any) -> None:
    try:
        build(config)(1, 1)
    except ConfigError as error:
        if "_target_" in str(error):
            raise TargetRefused from error
        raise


def build_all() -> list[Finding]:
    """Every target, plainly, as a partial, and deep inside the config of a model."""
    audit, found = Audit(), []
    for module in {*public.COMPONENTS.values()}:  # what they import is not what is asked about
        importlib.import_module(module)
    config = compose("train", ["corpus=synthetic"])
    build(config["model"], where="model")
    for target in hostile.CALLS:
        bad = {"_target_": target, "command": "id"}
        deep = copy.deepcopy(config["model"])
        deep["speller"]["attention"]["key_size"] = [{"x": bad}]
        for form, given in (("plain", bad), ("partial", bad | {"_partial_": True}), ("nested", deep)):
            before = set(sys.modules)
            wrong = audit.refused(lambda g=given: build_target(g), TargetRefused)
            new = set(sys.modules) - before
            found.append((f"{target}, {form}", wrong or (f"imported {new}" if new else "")))
    return found


def test_hostile_targets(tally: Tally) -> None:
    assert len(set(hostile.CALLS)) >= 100
    count_all(tally, watched(build_all))
    tally.close("F17 hostile _target_s: plain, partial, nested")


OVERRIDES = [
    f"name=${{oc.env:{SECRET}}}",
    f"run_dir=/tmp/${{oc.env:{SECRET}}}",
    f"corpus.root=${{oc.decode:${{oc.env:{SECRET}}}}}",
    f"+note=${{oc.env:{SECRET}}}",
    f"data_dir=[${{oc.env:{SECRET}}}]",
    "name=${oc.create:{a:1}}",
    "name=${hydra:runtime.cwd}",
]


def compose_all() -> list[Finding]:
    """Interpolations that would call a resolver; and Hydra's own keys, which must not move it anywhere."""
    os.environ[SECRET] = "secret"
    audit, found = Audit(), []
    compose("train", ["corpus=synthetic"])
    for override in OVERRIDES:
        found.append((override, audit.refused(lambda o=override: compose("train", [o]), ConfigError)))
    for override in ("hydra.run.dir=/etc/las", "hydra.output_subdir=/etc/las", "hydra.searchpath=[file:///etc]"):
        wrong = audit.refused(lambda o=override: compose("train", [o]), ConfigError)
        found.append((override, wrong.removeprefix("accepted") or ("wrote" if Path("/etc/las").exists() else "")))
    plain = {"name": f"${{oc.env:{SECRET}}}"}
    found.append(("config of a checkpoint", "resolved" if build(plain) != plain else ""))
    return found


def test_hostile_interpolations(tally: Tally) -> None:
    count_all(tally, watched(compose_all))
    tally.close("F17 hostile interpolations and Hydra's own keys")
