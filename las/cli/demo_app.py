"""The verb `demo_app`: a page in the browser that transcribes recordings and offers one to try, all on this machine."""

import contextlib
import copy
import importlib
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from markupsafe import Markup

from las.cli import demo_app_live, transcribe
from las.cli.demo_app_access import Guard
from las.cli.demo_app_live import Backend
from las.config.build import Config, check_values, require
from las.data import manifest
from las.data.audio import files
from las.decoding import tuned_search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import Transcriber
from las.decoding.transcription import SegmentTranscript, Transcription, find_audio
from las.nn.kernels import choice
from las.reproduction import charts, excerpts
from las.runtime import devices, machine, progress, templates
from las.runtime.errors import ConfigError, DataError, LasError
from las.storage import atomic
from las.training import plots

LIMITS = {"port": (1, 65535), "max_upload_mb": (0.001, 1e4), "max_duration_s": (0.1, 1e6)}
KINDS = {"checkpoint": str, "example": str | None, "host": str, "strict": bool, "allow_hosts": list[str]}
PRIVACY = "Recordings are sent only to the program that serves this page, which deletes them when it ends."
CLOSED = ("share", "inline", "enable_monitoring", "run_history", "ssr_mode", "mcp_server", "pwa", "num_workers")
TEMPLATE = "transcription.html"
ENDS = {
    "max_length": "cut off at the length limit of the search",
    "dead_end": "given up: the search found no way to go on",
}
STYLE = templates.render("transcription.css")
"""Colours are those of the page around the parts."""


class Parts(NamedTuple):
    """The text of a recording, and three parts of HTML."""

    text: str
    status: str
    attention: str = ""
    tokens: str = ""


def parts(transcription: Transcription, seconds: float) -> Parts:
    """All parts for a recording that was transcribed in `seconds`."""
    return Parts(transcription.text, status(transcription, seconds), attention(transcription), tokens(transcription))


def problem(message: str) -> Parts:
    """Return a paragraph that says why a recording has no transcription."""
    return Parts("", templates.macro(TEMPLATE, "problem", message=message))


def status(transcription: Transcription, seconds: float) -> str:
    """Return a paragraph: the recording's duration, real-time factor after `seconds` of work, how the search ended."""
    duration_s = transcription.duration_s
    sentences = [f"{duration_s:.2f} s of audio in {seconds:.2f} s: real-time factor {seconds / duration_s:.3f}"]
    if not transcription.pieces:
        sentences.append("it is silence: nothing was heard in it")
    else:
        pieces, ending = len(transcription.pieces), transcription.finished_by
        sentences.append(f"log-probability {transcription.score:.2f}")
        sentences += [f"heard in {pieces} pieces"] if pieces > 1 else []
        sentences += [ENDS[ending]] if ending in ENDS else []
    return templates.macro(TEMPLATE, "status", sentences=sentences)


def tokens(transcription: Transcription) -> str:
    """Return a table with a row for each token: start and end in seconds, confidence. Empty for silence."""
    rows = [(plots.shown(token.symbol), token) for token in transcription.tokens]
    return templates.macro(TEMPLATE, "tokens", rows=rows) if rows else ""


def attention(transcription: Transcription) -> str:
    """Return a heat map for each segment that was decoded. Empty for silence."""
    pictures = [charts.missing()] if charts.missing() else list(_pictures(transcription))
    return templates.macro(TEMPLATE, "attention", pictures=pictures) if pictures else ""


def _pictures(transcription: Transcription) -> Iterator[Markup]:
    for number, piece in enumerate(transcription.pieces, start=1):
        if not piece.half_weights.numel():  # an acoustic model has no attention
            continue
        whole = len(transcription.pieces) == 1
        title = "attention of each token" if whole else f"piece {number}{_place(piece)}"
        seconds = piece.half_weights.shape[1] * transcription.state_ms / 1000
        yield charts.heat_map(piece.weights.numpy(), piece.symbols, seconds, title)


def _place(piece: SegmentTranscript) -> str:
    return f", which begins at {piece.tokens[0].start_s:.1f} s" if piece.tokens else ""


def to_try(transcriber: Transcriber, chosen: str | None, folder: Path) -> tuple[Path, str] | None:
    """Return a recording for a page, in `folder`, and its label: a file, or else an utterance of the test split with
    its text.

    None if no file is chosen and the corpus is not here.
    """
    if chosen is not None:
        (source,) = find_audio(chosen)[:1]
        return Path(shutil.copy(source, folder)), source.name
    config = transcriber.config
    if "corpus" not in config:  # an exported bundle
        return None
    manifests = sorted((Path(config["data_dir"]) / "manifests").glob(f"{config['corpus']['name']}-*/test*.jsonl"))
    try:
        utterance = excerpts.fitting(manifest.read(manifests[-1]))
        path = folder / f"{utterance.id}.wav"
        path.write_bytes(excerpts.wav(utterance, transcriber.sample_rate))
    except (IndexError, DataError) as error:
        progress.say(f"the page has no example, because the corpus is not here ({error}): example=x.wav sets one")
        return None
    return path, utterance.text


class DemoBackend(Backend):
    """The function behind the button; a recording may last `max_duration_s`, and its transcription take as long."""

    def __init__(self, transcriber: Transcriber, kernel: str, max_duration_s: float = 3600.0) -> None:
        super().__init__(transcriber, kernel, max_duration_s)
        with choice.use_kernel(kernel):  # compiles the kernels now rather than at the first recording
            transcriber.decode([torch.zeros(transcriber.sample_rate)], [0.0])

    def __call__(self, path: str | None, size: int, length_normalisation: float) -> Parts:
        """Transcribe a file with a beam of this size; an error becomes a message with the file's own name."""
        if path is None:
            return problem("Record something first, or choose a file.")
        transcriber, started = copy.copy(self.transcriber), time.monotonic()
        if isinstance(transcriber.search, BeamSearch):
            transcriber.search = transcriber.search.reweighted({}, length_normalisation)
            transcriber.search.size, transcriber.search.nbest = size, 1
        in_time = lambda _: self.require_short(path, "takes", time.monotonic() - started)  # noqa: E731
        try:
            self.require_short(path, "lasts", files.info(path).duration_s)
            with self.computing():
                (transcription,) = transcriber.transcribe_all([path], batch_size=2, on_decoded=in_time)
        except LasError as error:
            return problem(str(error).replace(path, Path(path).name))
        return parts(transcription, time.monotonic() - started)


def demo_app(overrides: list[str]) -> None:
    """Serve the page until Ctrl-C or SIGTERM: see configs/demo_app.yaml. Raises ConfigError where it cannot be."""
    config = tuned_search.compose("demo_app", overrides)
    check_values(config, KINDS | {key: type(limits[0]) for key, limits in LIMITS.items()})
    for key, limits in LIMITS.items():
        require(key, config[key], *limits)
    names = [config["allow_hosts"]] if isinstance(config["allow_hosts"], str) else config["allow_hosts"]
    if wrong := [name for name in names if not re.fullmatch(r"[\w.-]+(:\d+)?", name)]:
        raise ConfigError(f"allow_hosts: {wrong[0]!r} is no host's name, for example allow_hosts=[demo.example.org]")
    machine.require_free(config["host"], config["port"])
    with atomic.temporary_folder("las-demo-app-") as folder:
        gradio = load_gradio(folder / "recordings")
        transcriber = transcribe.configured(config, str(devices.pick(config["device"])))
        example = to_try(transcriber, config["example"], folder)
        backend = DemoBackend(transcriber, str(config["kernel"]), config["max_duration_s"])
        serve(gradio, page(gradio, backend, example), folder, config | {"allow_hosts": names})
        backend.max_duration_s = 0.0  # what is being transcribed ends after this batch
        backend.idle.acquire()


def load_gradio(uploads: Path) -> Any:
    """Import gradio without telemetry and proxies, recordings in a folder. Raises ConfigError where it is missing."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_PROXY": "*"}
    os.environ["GRADIO_TEMP_DIR"] = str(uploads)
    try:
        return importlib.import_module("gradio")
    except ImportError as error:
        raise ConfigError(f"the page needs gradio ({error}): pip install 'las-asr[demo]'") from error


def page(gradio: Any, backend: DemoBackend, example: tuple[Path, str] | None) -> Any:
    """Return the page: recording and search on one side, transcription on the other."""
    search, title = backend.transcriber.search, f"las: {backend.transcriber.config.get('name', 'speech to text')}"
    beam, is_beam = (search, True) if isinstance(search, BeamSearch) else (BeamSearch(), False)
    audio = gradio.Audio(type="filepath", label="Recording: a file or the microphone", editable=False, buttons=[])
    size = gradio.Slider(1, 32, beam.size, step=1, label="Beam size", visible=is_beam)
    length = gradio.Slider(0, 2, beam.length_normalisation, step=0.1, label="Length normalisation", visible=is_beam)
    text = gradio.Textbox(label="Text", placeholder="The transcription appears here.", lines=2, max_lines=12)
    inputs, outputs = [audio, size, length], [text, *(gradio.HTML() for _ in range(3))]
    options = dict[str, Any](title=title, description=PRIVACY, submit_btn="Transcribe", clear_btn=None, deep_link=False)
    if example is not None:
        gradio.set_static_paths(example[0])  # read where it is, and not deleted with recordings
        options |= {"examples": [[str(example[0])]], "example_labels": [example[1]], "preload_example": False}
    blocks = gradio.Interface(backend, inputs, outputs, flagging_mode="never", delete_cache=(3600, 3600), **options)
    if demo_app_live.can_stream(backend.transcriber):
        speaking = demo_app_live.page(gradio, demo_app_live.LiveBackend(backend), PRIVACY)
        tabs = {"A recording": blocks, "While you speak": speaking}
        blocks = gradio.TabbedInterface([*tabs.values()], [*tabs], title=title)
    return blocks.queue(api_open=False, max_size=20)


def serve(gradio: Any, blocks: Any, folder: Path, config: Config) -> None:
    """Answer browsers until Ctrl-C or SIGTERM."""
    host = f"[{config['host']}]" if ":" in config["host"] else config["host"]
    names, most_bytes = [host.lower(), *map(str.lower, config["allow_hosts"])], round(1e6 * config["max_upload_mb"])
    guard = importlib.import_module("starlette.middleware").Middleware(Guard, names, folder, most_bytes)
    theme = gradio.themes.Default(primary_hue="blue", font=["system-ui", "sans-serif"], font_mono=["monospace"])
    options = dict.fromkeys(CLOSED, False) | dict.fromkeys(["strict_cors", "prevent_thread_lock", "quiet"], True)
    limits = {"max_file_size": most_bytes, "allowed_paths": [str(folder / "none")], "footer_links": [], "root_path": ""}
    look = {"theme": theme, "css": STYLE, "app_kwargs": {"middleware": [guard]}}
    _, url, _ = blocks.launch(server_name=host, server_port=config["port"], **options, **limits, **look)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # requests that visitors break off
    with contextlib.suppress(KeyboardInterrupt):
        progress.say(f"open {url.replace('[::]', 'localhost')} in a browser; Ctrl-C ends it")
        threading.Event().wait()
    blocks.close(verbose=False)
    progress.say("ended")
