"""A web server on this machine that can be told to misbehave, for tests of downloads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Answer = Callable[["Handler"], None]


@dataclass
class Site:
    """What the server serves: `files` by path, and `answers` that replace the next answers, whatever is asked."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)
    drops: list[int] = field(default_factory=list)  # offsets within a file at which connections end, one each
    asked: list[tuple[str, str]] = field(default_factory=list)  # path and Range of every request


class Handler(BaseHTTPRequestHandler):
    """Answers GET with Range as OpenSLR's servers do."""

    site: Site

    def do_GET(self) -> None:
        self.site.asked.append((self.path, self.headers.get("Range", "")))
        if self.site.answers:
            self.site.answers.pop(0)(self)
        elif self.path in self.site.files:
            self.file(self.site.files[self.path])
        else:
            self.reply(404, b"<html>not found</html>")

    def file(self, content: bytes) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self.reply(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        drop = next((offset for offset in self.site.drops if offset >= start), None)
        headers = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        if drop is None:
            self.reply(206 if start else 200, content[start:], headers)
        else:
            self.site.drops.remove(drop)
            self.reply(206 if start else 200, content[start:drop], headers, promised=len(content) - start)

    def reply(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, promised: int | None = None
    ) -> None:
        self.send_response(status)
        if promised != -1:
            self.send_header("Content-Length", str(len(content) if promised is None else promised))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


def says(
    status: int, content: bytes = b"", headers: dict[str, str] | None = None, promised: int | None = None
) -> Answer:
    """One answer; `promised` is its Content-Length where that is a lie, -1 for none."""
    return lambda handler: handler.reply(status, content, headers, promised)


class Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Says nothing where a client hangs up on an answer that it refuses."""


@contextmanager
def serving() -> Iterator[Site]:
    """The site of a server that runs meanwhile."""
    site = Site()
    handler = type("SiteHandler", (Handler,), {"site": site})
    with Server(("127.0.0.1", 0), handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
