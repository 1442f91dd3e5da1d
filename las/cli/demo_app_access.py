"""Access control that gradio's server lacks: against pages of other sites, foreign files and requests without end.

Any site can send requests to 127.0.0.1, under a name of its own too (DNS rebinding): Host, Origin, Sec-Fetch-* tell.
"""

import asyncio
import contextlib
import json
import re
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

UPLOAD = "/gradio_api/upload"
API = r"queue/data|upload_progress|startup-events|heartbeat/\w+|file=/.+"
READ = rf"/|/(theme\.css|manifest\.json|favicon\.ico)|/(assets|static)/.+|/gradio_api/({API})"
SENT = r"queue/join|run/predict|stream/[\da-f]+(/close)?"
PATHS = {"GET": READ, "HEAD": READ, "POST": f"{UPLOAD}|/gradio_api/({SENT})"}
SMALL_BYTES, NUM_STORED, NUM_FILES = 1 << 20, 10, 1000  # besides a recording; of the largest size; of any
STALLED_S, LONGEST_S = 20.0, 300.0  # to wait for the next part of a request, and for all of it


class Refused(Exception):
    """A request that is not answered: an HTTP status, and a sentence that says why."""


class Guard:
    """An ASGI middleware that refuses all requests but those of an application's own page.

    It is served under `names`, localhost and IP addresses, which no site can point at this machine. Files in `folder`
    are transcribed, of at most `most_bytes`; the oldest of its `recordings` are deleted where there are too many.
    """

    def __init__(self, app: Any, names: Sequence[str], folder: Path, most_bytes: int) -> None:
        self.app, self.folder, self.uploads, self.most_bytes = app, folder.resolve(), folder / "recordings", most_bytes
        self.hosts = re.compile("|".join([r"(localhost|[\d.]+|\[[\da-f:.]+\]", *map(re.escape, names)]) + r")(:\d+)?")
        self.arriving_bytes = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        is_upload = scope["path"] == UPLOAD
        body = Body(self, receive, SMALL_BYTES + is_upload * self.most_bytes)
        try:
            self._require_own(scope)
            if scope["method"] == "POST" and not is_upload:
                await body.require_form()
            await self.app(scope, body, send)
        except Refused as refusal:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": refusal.args[0], "headers": headers})
            await send({"type": "http.response.body", "body": f"las demo_app: {refusal.args[1]}\n".encode()})
        finally:
            self.arriving_bytes -= body.num_bytes
            if is_upload:
                self._make_room()

    def _require_own(self, scope: Message) -> None:
        """Raise Refused for a request under another name, from the page of another site, or of another path."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1").lower() for name, value in scope["headers"]}
        host, path, method = headers.get("host", ""), scope["path"], scope["method"]
        if not self.hosts.fullmatch(host):
            raise Refused(403, f"this page is not served as {host!r}: allow_hosts=[...] adds names")
        is_link = (method, path, headers.get("sec-fetch-dest")) == ("GET", "/", "document")
        is_foreign = headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not is_link
        if is_foreign or headers.get("origin", f"http://{host}") not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "requests of other sites' pages are not answered")
        if not re.fullmatch(PATHS.get(method, ""), path) or ".." in path.split("/"):
            raise Refused(404, "there is nothing here")

    def _make_room(self) -> None:
        with contextlib.suppress(FileNotFoundError):  # gradio has deleted one at this moment
            stored = sorted(filter(Path.is_file, self.uploads.rglob("*")), key=lambda path: path.stat().st_mtime)
            while len(stored) > NUM_FILES or sum(path.stat().st_size for path in stored) > NUM_STORED * self.most_bytes:
                stored.pop(0).unlink()


class Body:
    """The body of a request as it arrives. Raises Refused for one that is too large or slow, or one too many."""

    def __init__(self, guard: Guard, receive: Receive, most_bytes: int) -> None:
        self.guard, self.receive, self.most_bytes = guard, receive, most_bytes
        self.num_bytes, self.is_whole, self.form, self.end = 0, False, list[Message](), time.monotonic() + LONGEST_S

    async def __call__(self) -> Message:
        if self.is_whole:  # what follows is the end of the connection, which may take its time
            return self.form.pop() if self.form else await self.receive()
        try:
            message = await asyncio.wait_for(self.receive(), min(STALLED_S, self.end - time.monotonic()))
        except TimeoutError as error:
            raise Refused(408, "the request took too long to arrive") from error
        size, self.is_whole = len(message.get("body", b"")), not message.get("more_body", False)
        self.num_bytes += size
        self.guard.arriving_bytes += size
        if self.num_bytes > self.most_bytes:
            raise Refused(413, f"a recording has at most {self.guard.most_bytes / 1e6:g} MB: see max_upload_mb=...")
        if self.guard.arriving_bytes > NUM_STORED * (self.guard.most_bytes + SMALL_BYTES):
            raise Refused(503, "too many recordings are arriving: try again in a minute")
        return message

    async def require_form(self) -> None:
        """Raise Refused for a form where a `path` is a URL, or a file outside the folder; it is read whole."""

        def inside(value: dict[str, Any]) -> dict[str, Any]:
            if "path" in value and not Path(value["path"]).resolve().is_relative_to(self.guard.folder):
                raise Refused(403, "only recordings that were sent to this page are transcribed")
            return value

        text = b""
        while not self.is_whole:
            text += (await self()).get("body", b"")
        try:
            self.form = [{"type": "http.request", "body": json.dumps(json.loads(text, object_hook=inside)).encode()}]
        except (ValueError, TypeError, OSError, RecursionError) as error:
            raise Refused(400, "this is no form of the page") from error
