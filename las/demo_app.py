"""The verb `demo_app`: a page in the browser that hears recordings. All of it stays on this machine."""

import importlib
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from inspect import Parameter
from pathlib import Path
from typing import Any

from las import arguments, build, devices, progress, tuned
from las import transcribe as recogniser
from las.ear import Ear, Example, example_of
from las.errors import ConfigError
from las.evaluation import Search
from las.pieces import Cutter
from las.reports import transcription
from las.search import Beam

PRIVACY = "Recordings are heard by the program that serves this page, and deleted when it ends. They go nowhere else."
FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
"""Those of the browser: none is fetched."""


def demo_app(overrides: list[str]) -> None:
    """Serve the page until the program is told to stop: see configs/demo_app.yaml.

    Raises ConfigError without gradio, and for an address that cannot be had.
    """
    config = tuned.compose("demo_app", overrides)
    for key, kind in (("checkpoint", str), ("example", str | None), ("host", str), ("port", int), ("strict", bool)):
        arguments.check_value(key, config[key], kind)
    require_free(config["host"], config["port"])
    with tempfile.TemporaryDirectory(prefix="las-", ignore_cleanup_errors=True) as folder:
        gradio = load_gradio(folder)
        search: Search = build.build(config["search"], where="search")
        pieces, by_name = config["pieces"], [Parameter.KEYWORD_ONLY]
        cutter: Callable[[int], Cutter] = build.checked(Cutter, pieces, "pieces", kinds=by_name)
        device = str(devices.pick(config["device"]))
        transcriber = recogniser.load(config["checkpoint"], search, device, cutter, config["strict"])
        example = example_of(transcriber, config["example"], Path(folder))
        serve(gradio, page(gradio, Ear(transcriber, str(config["kernel"])), example), config["host"], config["port"])


def load_gradio(folder: str) -> Any:
    """The library that makes the page, told to report nothing to anybody and to keep uploads in a folder."""
    os.environ |= {"GRADIO_ANALYTICS_ENABLED": "False", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_TEMP_DIR": folder}
    try:
        return importlib.import_module("gradio")
    except ImportError as error:
        raise ConfigError(f"the page needs gradio ({error}): pip install '.[demo]'") from error


def require_free(host: str, port: int) -> None:
    """Raise ConfigError unless a server can listen there."""
    if not 0 < port < 65536:
        raise ConfigError(f"port={port} must be between 1 and 65535, for example port=7860")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except OSError as error:
        where = f"host={host} port={port}: no page can be served there ({error.strerror})"
        raise ConfigError(f"{where}: try port={port % 65535 + 1}, or host=127.0.0.1") from error


def page(gradio: Any, ear: Ear, example: Example | None) -> Any:
    """What is where."""
    search = ear.transcriber.search
    beam = search if isinstance(search, Beam) else Beam()
    title = f"las: {ear.transcriber.config.get('name', 'speech to text')}"
    with gradio.Blocks(title=title, analytics_enabled=False, delete_cache=(3600, 3600)) as blocks:
        gradio.Markdown(f"# {title}\n{PRIVACY}")
        with gradio.Row():
            with gradio.Column(scale=2, min_width=320):
                audio = gradio.Audio(
                    type="filepath", label="Recording: a file or the microphone", editable=False, buttons=[]
                )
                if example is not None:
                    gradio.Examples([[example.path]], [audio], label="Example", example_labels=[example.text])
                with gradio.Group(visible=isinstance(search, Beam)):
                    size = gradio.Slider(1, 32, beam.size, step=1, label="Beam size")
                    length = gradio.Slider(0, 2, beam.length_normalisation, step=0.1, label="Length normalisation")
                button = gradio.Button("Transcribe", variant="primary")
            with gradio.Column(scale=3, min_width=320):
                hint = "What is heard appears here."
                text = gradio.Textbox(label="Text", placeholder=hint, lines=2, max_lines=12, buttons=["copy"])
                shown = [text, *(gradio.HTML() for _ in range(3))]
        button.click(ear, [audio, size, length], shown, show_progress_on=text, api_visibility="private")
    return blocks


def serve(gradio: Any, blocks: Any, host: str, port: int) -> None:
    """Answer browsers until Ctrl-C."""
    options = {"share": False, "ssr_mode": False, "mcp_server": False, "run_history": False, "footer_links": []}
    look = {"theme": gradio.themes.Default(primary_hue="blue", **FONTS), "css": transcription.STYLE}
    try:
        blocks.launch(server_name=host, server_port=port, quiet=True, prevent_thread_lock=True, **options, **look)
        progress.say(f"open http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port} in a browser; Ctrl-C ends it")
        threading.Event().wait()
    except KeyboardInterrupt:
        progress.say("ended")
    finally:
        blocks.close(verbose=False)
