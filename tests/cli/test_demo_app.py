"""The page of las demo_app without a browser: what is heard, what is said of bad files, what keeps it from starting."""

import dataclasses
import os
import re
import socket
import sys
import time
from pathlib import Path
from unittest.mock import MagicMock

import pytest
import soundfile
import torch
from console import Las
from demo_page import free_port
from places import REPOSITORY
from tiny import RATE, sound, wav

from las.cli import demo_app
from las.cli.demo_app import DemoBackend, to_try
from las.data.audio import files
from las.data.audio.streaming import Segmenter
from las.decoding.search import BeamSearch, GreedySearch
from las.decoding.transcriber import Transcriber, load


@pytest.fixture(scope="module")
def transcriber(trained: Path) -> Transcriber:
    return load(trained / "run", BeamSearch(size=4))


@pytest.fixture(scope="module")
def ear(transcriber: Transcriber) -> DemoBackend:
    return DemoBackend(transcriber, "auto")


def cells(table: str) -> list[list[str]]:
    """The rows of an HTML table as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", table)
    return [[re.sub("<.*?>", "", cell) for cell in re.findall(r"<td>(.*?)</td>", row)] for row in rows][1:]


def test_the_page_shows_what_transcribe_hears(ear: DemoBackend, transcriber: Transcriber, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    heard, shown = transcriber.transcribe(path), ear(str(path), 4, 1.0)
    assert shown.text == heard.text
    assert cells(shown.tokens) == [
        [token.symbol, f"{token.start_s:.2f}", f"{token.end_s:.2f}", f"{token.confidence:.1%}"]
        for token in heard.tokens
    ]
    assert shown.attention.count("<figure") == shown.attention.count("data:image/svg+xml") == 1
    assert shown.status.startswith('<p class="heard">0.34 s ')
    assert re.search(r"factor \d+\.\d{3} · log-probability -\d", shown.status)


def test_without_a_checkpoint_the_page_hears_with_a_pretrained_model(las: Las, monkeypatch: pytest.MonkeyPatch) -> None:
    gradio, heard = MagicMock(), []

    def serve(*_: object) -> None:
        backend = gradio.Interface.call_args.args[0]
        heard.append(backend(str(REPOSITORY / "docs/examples/an4.flac"), 8, 1.0).text)

    monkeypatch.setattr(demo_app, "load_gradio", lambda uploads: gradio)
    monkeypatch.setattr(demo_app, "serve", serve)
    las("demo_app", f"port={free_port()}").succeeds("model=an4")
    assert heard == ["ENTER NINE ONE SIX NINE"]


def test_the_sliders_are_the_search_of_one_recording(ear: DemoBackend, trained: Path) -> None:
    path = wav(trained, "mdab0_sx1")
    greedy = load(trained / "run", GreedySearch()).transcribe(path)
    assert ear(str(path), 1, 1.0).text == greedy.text
    by_score = load(trained / "run", BeamSearch(size=9, length_normalisation=0.0)).transcribe(path)
    assert ear(str(path), 9, 0.0).text == by_score.text
    search = ear.transcriber.search
    assert isinstance(search, BeamSearch) and (search.size, search.length_normalisation) == (4, 1.0)
    fixed = DemoBackend(load(trained / "run", GreedySearch()), "auto")  # a search without a beam has no sliders
    assert fixed(str(path), 9, 0.0).text == greedy.text


def test_long_recordings_have_a_picture_for_each_piece(trained: Path, tmp_path: Path) -> None:
    cutter = lambda rate: Segmenter(rate, longest_s=0.5, shortest_s=0.2, overlap_s=0.1, pause_s=0.1)  # noqa: E731
    ear = DemoBackend(load(trained / "run", GreedySearch(), cutter=cutter), "auto")
    path = sound(tmp_path / "long.wav", 2.0)
    pieces = ear.transcriber.transcribe(path).pieces
    shown = ear(str(path), 1, 1.0)
    assert len(pieces) > 3 and f"{len(pieces)} pieces" in shown.status
    assert shown.attention.count("<figure") == len(pieces)
    assert f"{pieces[1].tokens[0].start_s:.1f} s" in shown.attention


def test_what_cannot_be_heard_is_said_in_words(ear: DemoBackend, tmp_path: Path) -> None:
    """And with the file's own name: where the server keeps it says nothing to a person."""
    (tmp_path / "text.wav").write_text("no audio")
    (tmp_path / "empty.wav").touch()
    soundfile.write(tmp_path / "nan.wav", torch.full((RATE,), torch.nan), RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "silence.wav", torch.zeros(RATE), RATE)
    sound(tmp_path / "click.wav", 0.01)
    problem = '<p class="heard problem" role="alert">'
    for name, says in (
        ("text.wav", f"{problem}text.wav: "),
        ("empty.wav", f"{problem}empty.wav: "),
        ("nan.wav", f"{problem}nan.wav: "),
        ("click.wav", f"{problem}click.wav: 0.0100 s"),
        ("<b>absent.wav", f"{problem}&lt;b&gt;absent.wav: "),
        ("silence.wav", "silence"),
    ):
        shown = ear(str(tmp_path / name), 4, 1.0)
        assert says in shown.status and str(tmp_path) not in shown.status and "Traceback" not in shown.status
        assert (shown.text, shown.attention, shown.tokens) == ("", "", "")
    assert "Record" in ear(None, 4, 1.0).status


def test_recordings_that_last_or_take_too_long_are_given_up(
    transcriber: Transcriber, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their headers, and whatever their headers say of their duration."""
    backend = DemoBackend(transcriber, "auto", max_duration_s=60.0)
    assert backend(str(sound(tmp_path / "fits.wav", 2.0)), 4, 1.0).status.startswith('<p class="heard">2.00 s')
    assert "long.wav: lasts 1:02," in backend(str(sound(tmp_path / "long.wav", 62.1)), 4, 1.0).status
    path = sound(tmp_path / "long.wav", 200.0)
    info, started = files.info, time.monotonic()
    monkeypatch.setattr(files, "info", lambda path: dataclasses.replace(info(path), num_samples=RATE))
    monkeypatch.setattr(transcriber.cutter, "is_silent", lambda samples: True)
    monkeypatch.setattr("time.monotonic", lambda: started + 70 * len(passed))
    passed: list[float] = []
    decode = transcriber.decode
    monkeypatch.setattr(transcriber, "decode", lambda *given: (passed.append(1.0), decode(*given))[1])
    shown = backend(str(path), 4, 1.0)
    assert "long.wav: takes 1:10," in shown.status and len(passed) == 1


def test_the_example_is_of_the_test_split(transcriber: Transcriber, trained: Path, tmp_path: Path) -> None:
    example = to_try(transcriber, None, tmp_path)
    assert example is not None and example[0].parent == tmp_path
    original = wav(trained, example[0].stem)
    assert "TEST" in original.parts and soundfile.info(example[0]).duration == soundfile.info(original).duration
    assert example[1] == "sil aa iy sil"
    assert to_try(transcriber, str(original), tmp_path) == (tmp_path / original.name, original.name)
    assert (tmp_path / original.name).read_bytes() == original.read_bytes()


def test_without_its_corpus_there_is_no_example(
    trained_copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    transcriber = load(trained_copy)
    monkeypatch.setitem(transcriber.config, "data_dir", str(tmp_path / "elsewhere"))
    assert to_try(transcriber, None, tmp_path) is None
    assert "example=x.wav" in capsys.readouterr().out
    monkeypatch.delitem(transcriber.config, "corpus")  # as in an exported bundle
    assert to_try(transcriber, None, tmp_path) is None


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the verb sets is as before afterwards."""
    for name in ("GRADIO_ANALYTICS_ENABLED", "HF_HUB_DISABLE_TELEMETRY", "GRADIO_TEMP_DIR", "NO_PROXY"):
        monkeypatch.setenv(name, "")


@pytest.mark.parametrize("verb", ["demo-app", "demo_app"])
def test_without_gradio_it_says_how_to_get_it(
    verb: str, las: Las, trained: Path, environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    las(verb, f"checkpoint={trained / 'run'}", f"port={free_port()}").fails(2, "gradio 'las-asr[demo]'")
    assert os.environ["GRADIO_ANALYTICS_ENABLED"] == "False"
    assert not Path(os.environ["GRADIO_TEMP_DIR"]).exists()


def test_a_port_that_is_taken_is_named(las: Las) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        las("demo_app", "checkpoint=x", f"port={port}").fails(2, f"port={port}: use):")
