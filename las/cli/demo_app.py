"""The verb `demo_app`: a page in the browser that transcribes recordings and offers one to try, all on this machine."""

import copy
import importlib
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter
from pathlib import Path
from typing import Any, NamedTuple

import torch

from las.cli.demo_app_access import App, Guard, Hosts
from las.data import manifest
from las.data.audio import files
from las.data.audio.segmentation import Segmenter
from las.decoding import tuned_search
from las.decoding.evaluation import Search
from las.decoding.search import BeamSearch
from las.decoding.transcriber import Transcriber, find_audio, load
from las.decoding.transcription import Transcription
from las.nn import rnn
from las.reproduction import examples, transcription_html
from las.runtime import devices, progress
from las.runtime.config import Config, build, check_value, checked
from las.runtime.errors import ConfigError, DataError, LasError
from las.storage import temporary


class PageOutputs(NamedTuple):
    """The page's outputs for a recording: its text, and three parts of HTML."""

    text: str
    status: str
    attention: str = ""
    tokens: str = ""


class DemoBackend:
    """The function behind the button; recordings longer than `max_duration_s` are refused."""

    def __init__(self, transcriber: Transcriber, kernel: str, max_duration_s: float = 3600.0) -> None:
        self.transcriber, self.kernel, self.max_duration_s = transcriber, kernel, max_duration_s
        with rnn.use_kernel(kernel):  # compiles the kernels now rather than at the first recording
            transcriber.decode([torch.zeros(transcriber.sample_rate)], [0.0])

    def __call__(self, path: str | None, size: int, length_normalisation: float) -> PageOutputs:
        """Transcribe a file with a beam of this size; an error becomes a message with the file's own name."""
        if path is None:
            return PageOutputs("", transcription_html.problem("Record something first, or choose a file."))
        transcriber = copy.copy(self.transcriber)
        if isinstance(transcriber.search, BeamSearch):
            transcriber.search = transcriber.search.reweighted({}, length_normalisation)
            transcriber.search.size, transcriber.search.nbest = size, 1
        started = time.monotonic()
        try:
            with rnn.use_kernel(self.kernel):
                self.require_short(path, files.info(path).duration_s)
                transcription = self._transcribe(transcriber, path)
        except LasError as error:
            return PageOutputs("", transcription_html.problem(str(error).replace(path, Path(path).name)))
        status = transcription_html.status(transcription, time.monotonic() - started)
        return PageOutputs(
            transcription.text,
            status,
            transcription_html.attention(transcription),
            transcription_html.tokens(transcription),
        )

    def _transcribe(self, transcriber: Transcriber, path: str) -> Transcription:
        """Transcribe a file, and check its duration while reading: some headers state a shorter one."""
        decoded_s = 0.0

        def advance(seconds: float) -> None:
            nonlocal decoded_s
            decoded_s += seconds
            self.require_short(path, decoded_s)

        (transcription,) = transcriber.transcribe_all([path], on_decoded=advance)
        return transcription

    def require_short(self, path: str, seconds: float) -> None:
        """Raise DataError for a recording that is too long."""
        if seconds > self.max_duration_s:
            longest = f"a recording may have {progress.duration(self.max_duration_s)}: max_duration_s=... allows more"
            raise DataError(f"{path}: lasts {progress.duration(seconds)}, {longest}", kind="too long")


class DemoExample(NamedTuple):
    """A recording to try, and its reference text."""

    path: str
    text: str


def example_of(transcriber: Transcriber, chosen: str | None, folder: Path) -> DemoExample | None:
    """The chosen recording, or else one of the test split, as a wav in `folder`; None if the corpus is not here."""
    if chosen is not None:
        (path,) = find_audio(chosen)[:1]
        return DemoExample(str(path), path.name)
    config = transcriber.config
    if "corpus" not in config:  # an exported bundle
        return None
    manifests = sorted((Path(config["data_dir"]) / "manifests").glob(f"{config['corpus']['name']}-*/test*.jsonl"))
    try:
        utterance = examples.fitting(manifest.read(manifests[-1]))
        path = folder / f"{utterance.id}.wav"
        path.write_bytes(examples.wav(utterance, transcriber.sample_rate))
    except (IndexError, DataError) as error:
        progress.say(f"the page has no example, because the corpus is not here ({error}): example=x.wav sets one")
        return None
    return DemoExample(str(path), utterance.text)


PRIVACY = "Recordings are sent only to the program that serves this page, which deletes them when it ends."
FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
"""The browser's own fonts: none is fetched."""
PREFIX = "las-demo-app-"
"""The prefix of the temporary directory with recordings."""
UPLOAD = "/gradio_api/upload"
LOOK = r"/|/theme\.css|/manifest\.json|/favicon\.ico|/(assets|static)/.+"
SHUTDOWN_S = 5.0
"""The time in seconds that open requests have to finish when the server ends."""


def paths(folder: Path) -> dict[str, re.Pattern[str]]:
    """Patterns of the paths that gradio's page requests, by HTTP method; files only from `folder`."""
    reading = f"{LOOK}|/gradio_api/(queue/data|upload_progress|file={re.escape(str(folder))}/.+)"
    return {
        "GET": re.compile(reading),
        "HEAD": re.compile(reading),
        "POST": re.compile(f"{UPLOAD}|/gradio_api/(queue/join|run/predict)"),
    }


def demo_app(overrides: list[str]) -> None:
    """Serve the page until Ctrl-C: see configs/demo_app.yaml.

    Raises ConfigError without gradio, and for an address that cannot be bound.
    """
    config = tuned_search.compose("demo_app", overrides)
    check(config)
    allowed = config["allow_hosts"]
    hosts = Hosts(config["host"], config["port"], [allowed] if isinstance(allowed, str) else allowed)
    require_free(config["host"], config["port"])
    with temporary.folder(PREFIX) as folder:
        gradio = load_gradio(str(folder))
        search: Search = build(config["search"], where="search")
        pieces, by_name = config["pieces"], [Parameter.KEYWORD_ONLY]
        cutter: Callable[[int], Segmenter] = checked(Segmenter, pieces, "pieces", kinds=by_name)
        device = str(devices.pick(config["device"]))
        transcriber = load(config["checkpoint"], search, device, cutter, config["strict"], config["precision"])
        example = example_of(transcriber, config["example"], folder)
        backend = DemoBackend(transcriber, str(config["kernel"]), config["max_duration_s"])
        most_bytes = round(1e6 * config["max_upload_mb"])
        app = application(gradio, page(gradio, backend, example), most_bytes)
        serve(Guard(app, hosts, paths(folder), UPLOAD, folder, most_bytes), config["host"], config["port"])


def check(config: Config) -> None:
    """Raise ConfigError for a value of the wrong type, and for limits that are not positive and finite."""
    kinds = {
        "checkpoint": str,
        "example": str | None,
        "host": str,
        "port": int,
        "strict": bool,
        "allow_hosts": list[str],
    }
    limits = ("max_upload_mb", "max_duration_s")
    for key, kind in (kinds | dict.fromkeys(limits, float)).items():
        check_value(key, config[key], kind)
    for key in limits:
        if not 0 < config[key] < float("inf"):
            raise ConfigError(f"{key}={config[key]} must be above 0, for example {key}=100")


def load_gradio(folder: str) -> Any:
    """Import gradio without telemetry, with uploads in `folder`. Raises ConfigError if it is not installed."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_TEMP_DIR": folder}
    try:
        return importlib.import_module("gradio")
    except ImportError as error:
        raise ConfigError(f"the page needs gradio ({error}): pip install '.[demo]'") from error


def require_free(host: str, port: int) -> None:
    """Raise ConfigError unless a server can be bound to this address."""
    if not 0 < port < 65536:
        raise ConfigError(f"port={port} must be between 1 and 65535, for example port=7860")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        refusal = f"host={host} port={port}: no page can be served there ({error.strerror})"
        raise ConfigError(f"{refusal}: try port={port % 65535 + 1}, or host=127.0.0.1") from error


def page(gradio: Any, backend: DemoBackend, example: DemoExample | None) -> Any:
    """The layout of the page: recording and beam size on one side, transcription on the other."""
    search = backend.transcriber.search
    beam = search if isinstance(search, BeamSearch) else BeamSearch()
    title = f"las: {backend.transcriber.config.get('name', 'speech to text')}"
    with gradio.Blocks(title=title, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        gradio.Markdown(f"# {title}\n{PRIVACY}")
        with gradio.Row():
            with gradio.Column(scale=2, min_width=320):
                audio = gradio.Audio(
                    type="filepath", label="Recording: a file or the microphone", editable=False, buttons=[]
                )
                if example is not None:
                    shown_as = {"label": "Example", "example_labels": [example.text], "api_visibility": "private"}
                    gradio.Examples([[example.path]], [audio], **shown_as)
                with gradio.Group(visible=isinstance(search, BeamSearch)):
                    size = gradio.Slider(1, 32, beam.size, step=1, label="Beam size")
                    length = gradio.Slider(0, 2, beam.length_normalisation, step=0.1, label="Length normalisation")
                button = gradio.Button("Transcribe", variant="primary")
            with gradio.Column(scale=3, min_width=320):
                hint = "The transcription appears here."
                text = gradio.Textbox(label="Text", placeholder=hint, lines=2, max_lines=12, buttons=["copy"])
                outputs = [text, *(gradio.HTML() for _ in range(3))]
        button.click(backend, [audio, size, length], outputs, show_progress_on=text, api_visibility="private")
    return blocks.queue(api_open=False)  # requests can only go through the page's queue


def application(gradio: Any, blocks: Any, most_bytes: int) -> App:
    """The ASGI application of the page, without gradio's other end points."""
    fastapi = importlib.import_module("fastapi")
    options = {"ssr_mode": False, "mcp_server": False, "run_history": False, "footer_links": []}
    look = {"theme": gradio.themes.Default(primary_hue="blue", **FONTS), "css": transcription_html.STYLE}
    closed = {"enable_monitoring": False, "max_file_size": most_bytes}
    outer = fastapi.FastAPI(openapi_url=None)
    mounted: App = gradio.mount_gradio_app(outer, blocks, path="/", **options, **look, **closed)
    return mounted


def serve(app: App, host: str, port: int) -> None:
    """Answer browsers until Ctrl-C."""
    with serving(app, host, port):
        try:
            progress.say(f"open http://{_browser_host(host)}:{port} in a browser; Ctrl-C ends it")
            threading.Event().wait()
        except KeyboardInterrupt:
            progress.say("ended")


def _browser_host(host: str) -> str:
    """The host of the page's address, in the form that a browser accepts."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}
    return reachable.get(host, f"[{host}]" if ":" in host else host)


@contextmanager
def serving(app: App, host: str, port: int) -> Iterator[None]:
    """Run the server in a thread of its own, so that signals reach the main thread."""
    uvicorn = importlib.import_module("uvicorn")
    options = {"log_level": "critical", "timeout_graceful_shutdown": 1, "ws": "none", "server_header": False}
    server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, **options))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        if not thread.is_alive():
            raise ConfigError(f"host={host} port={port}: no page can be served there")
        time.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(SHUTDOWN_S)
