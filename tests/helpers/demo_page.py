"""The page of las demo_app, served by a process of its own, and requests to it as programs send them."""

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

LIMIT_S = 240.0
AUDITED = """
import json, sys

def note(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        where = arguments[0] if event == "socket.getaddrinfo" else arguments[1]
        with open(sys.argv[1], "a") as file:
            file.write(json.dumps(where if isinstance(where, str) or where is None else where[0]) + "\\n")

sys.addaudithook(note)
from las.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


class Served(NamedTuple):
    """A page that is served."""

    url: str
    process: subprocess.Popen[str]
    folder: Path
    """With `asked`, the addresses that the server spoke to, and `out` and `err`, what it printed."""

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")

    @property
    def asked(self) -> list[str | None]:
        """The addresses that the server spoke to."""
        return [json.loads(line) for line in (self.folder / "asked").read_text().splitlines()]

    @property
    def kept(self) -> list[Path]:
        """Folders with recordings, of this program or left by one before."""
        return sorted((self.folder / "temporary").glob("las-*"))

    @property
    def stored(self) -> list[Path]:
        """Files in them, but for the example. os.walk passes over folders that the server deletes meanwhile."""
        walks = [step for folder in self.kept for step in os.walk(folder / "recordings")]
        return [Path(folder, name) for folder, _, names in walks for name in names]

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and text of an answer; `_` in a header's name stands for `-`."""
        connection = http.client.HTTPConnection(self.address, timeout=LIMIT_S)
        try:
            named = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def post(self, path: str, form: Any) -> tuple[int, str]:
        return self.ask("POST", path, json.dumps(form), Content_Type="application/json")

    def upload(self, *contents: bytes, name: str = "x.wav") -> tuple[int, str]:
        return self.ask("POST", "/gradio_api/upload", b"".join(form(*contents, name=name)), **FORM)

    @property
    def function(self) -> int:
        """The number of the function behind the button, which is the one with three inputs."""
        _, _, rest = self.ask("GET", "/")[1].partition("window.gradio_config = ")
        config, _ = json.JSONDecoder().raw_decode(rest)
        (number,) = (each["id"] for each in config["dependencies"] if len(each["inputs"]) == 3)
        return int(number)

    def transcribe(self, recording: Any, size: Any = 4, session: str = "s") -> tuple[int, str]:
        """Press the button: the answer to it, or else the last message of the queue."""
        asked = {"data": [recording, size, 1.0], "fn_index": self.function, "session_hash": session}
        status, text = self.post("/gradio_api/queue/join", asked)
        if status != 200:
            return status, text
        return status, self.ask("GET", f"/gradio_api/queue/data?session_hash={session}")[1]


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


FORM = {"Content_Type": "multipart/form-data; boundary=x"}


def form(*contents: bytes, name: str = "x.wav") -> Iterator[bytes]:
    """The parts of a request that uploads a file of these contents, one after the other."""
    yield f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\n\r\n'.encode()
    yield from contents
    yield b"\r\n--x--\r\n"


def file_data(path: str, **more: Any) -> dict[str, Any]:
    """What the page sends as the value of a recording."""
    return {"path": path, "meta": {"_type": "gradio.FileData"}, "orig_name": "x.wav", **more}


@contextmanager
def serve(run: Path, folder: Path, *more: str, **environment: str) -> Iterator[Served]:
    """Serve a run's page; the program's temporary files, output and addresses go into `folder`."""
    (folder / "temporary").mkdir(exist_ok=True)
    port = free_port()
    command = [sys.executable, "-c", AUDITED, str(folder / "asked"), "demo_app", f"checkpoint={run}", *more]
    variables = os.environ | {"TMPDIR": str(folder / "temporary")} | environment
    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*command, f"port={port}"], stdout=out, stderr=err, env=variables, text=True, cwd=folder
        )
    try:
        end = time.monotonic() + LIMIT_S
        while "open http" not in (folder / "out").read_text():
            assert process.poll() is None and time.monotonic() < end, (folder / "err").read_text()
            time.sleep(0.2)
        yield Served(f"http://127.0.0.1:{port}", process, folder)
    finally:
        process.kill()
        process.wait()
