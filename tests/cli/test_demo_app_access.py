"""Requests to the page of las demo_app, sent to the ASGI application itself: its own are answered, hostile ones not."""

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from las.cli import demo_app, demo_app_access
from las.runtime.errors import ConfigError

LARGEST = 1000
HOST = {"host": "127.0.0.1:7860"}
CHUNK = b"x" * demo_app_access.SMALL_BYTES


class Answered(NamedTuple):
    status: int
    body: str


class Page:
    """What stands behind the guard: it reads all that it is sent, and says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.read = 0
        self.is_disconnected = False

    async def __call__(
        self, scope: demo_app_access.Message, receive: demo_app_access.Receive, send: demo_app_access.Send
    ) -> None:
        self.asked.append(f"{scope['method']} {scope['path']}")
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.is_disconnected = True
                raise ConnectionError("the visitor is gone")  # as starlette does
            self.read += len(message["body"])
            if not message["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"welcome"})


class Door(NamedTuple):
    """A guard and the page behind it."""

    guard: demo_app_access.Guard
    page: Page

    def ask(
        self,
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = HOST,
        path: str = "/",
        method: str = "GET",
        body: Iterable[bytes] = (b"",),
    ) -> Answered:
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        raw = [(name.encode(), value.encode("latin-1")) for name, value in pairs]
        scope = {"type": "http", "method": method, "path": path, "headers": raw}
        chunks = list(body)
        coming = iter([*((chunk, True) for chunk in chunks[:-1]), (chunks[-1], False)])
        sent: list[demo_app_access.Message] = []

        async def receive() -> demo_app_access.Message:
            content, more = next(coming)
            return {"type": "http.request", "body": content, "more_body": more}

        async def send(message: demo_app_access.Message) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, receive, send))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        return Answered(sent[0]["status"], sent[1]["body"].decode())

    def upload(self, *chunks: bytes, **headers: str) -> Answered:
        return self.ask(HOST | headers, demo_app.UPLOAD, "POST", chunks or (b"",))


def door(folder: Path, host: str = "127.0.0.1", port: int = 7860, allowed: Iterable[str] = ()) -> Door:
    page = Page()
    hosts = demo_app_access.Hosts(host, port, allowed)
    return Door(demo_app_access.Guard(page, hosts, demo_app.paths(folder), demo_app.UPLOAD, folder, LARGEST), page)


@pytest.mark.parametrize("host", ["127.0.0.1:7860", "localhost:7860", "LOCALHOST:7860", "[::1]:7860"])
def test_this_machine_is_answered(tmp_path: Path, host: str) -> None:
    page = door(tmp_path)
    own = {"origin": f"http://{host}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert page.ask({"host": host}) == (200, "welcome")
    assert page.ask({"host": host, "sec-fetch-site": "none", "sec-fetch-dest": "document"}) == (200, "welcome")
    assert page.ask({"host": host} | own, "/gradio_api/queue/join", "POST") == (200, "welcome")


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7860",  # rebound to 127.0.0.1
        "127.0.0.1.evil.example:7860",
        "localhost.evil.example:7860",
        "127.0.0.1:7861",
        "127.0.0.1",
        "192.168.1.5:7860",
        "127.0.0.1:7860@evil.example",
        "evil.example/127.0.0.1:7860",
        "127.0.0.1:7860, evil.example",
        "",
        " ",
        "\xe9vil.example",
    ],
)
def test_another_name_is_refused(tmp_path: Path, host: str) -> None:
    page = door(tmp_path)
    for path, method in (("/", "GET"), ("/theme.css", "HEAD"), ("/gradio_api/queue/join", "POST")):
        answer = page.ask({"host": host}, path, method)
        assert answer.status == 403 and "is not served as" in answer.body and "allow_hosts=[...]" in answer.body
    assert page.page.asked == []


def test_one_host_and_no_more_is_named(tmp_path: Path) -> None:
    page = door(tmp_path)
    good = ("host", "127.0.0.1:7860")
    assert page.ask([]).status == 403
    assert page.ask([good, good]).status == 403
    assert page.ask([good, ("host", "evil.example")]).status == 403
    assert page.ask([good, ("x-forwarded-host", "evil.example")]).status == 403
    assert page.ask([good, ("x-forwarded-host", "localhost:7860")]).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "http://evil.example:7860"},
        {"origin": "http://127.0.0.1:8000"},  # another page of this machine
        {"origin": "http://127.0.0.1"},
        {"origin": "http://localhost:7860"},  # another origin than 127.0.0.1:7860
        {"origin": "http://127.0.0.1:7860.evil.example"},
        {"origin": "ftp://127.0.0.1:7860"},
        {"origin": "null"},
        {"origin": ""},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"},
        {"sec-fetch-site": "cross-site", "sec-fetch-dest": "iframe", "sec-fetch-mode": "navigate"},
        {"sec-fetch-site": "same-site", "sec-fetch-dest": "script"},
    ],
)
def test_the_page_of_another_site_is_refused(tmp_path: Path, headers: dict[str, str]) -> None:
    page = door(tmp_path)
    for path, method in (("/", "GET"), (demo_app.UPLOAD, "POST"), ("/gradio_api/queue/join", "POST")):
        answer = page.ask(HOST | headers, path, method)
        assert answer == (403, "las demo_app: requests of other sites' pages are not answered\n")
    assert page.page.asked == []


def test_a_link_from_another_site_may_lead_to_the_page(tmp_path: Path) -> None:
    link = HOST | {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document", "sec-fetch-mode": "navigate"}
    assert door(tmp_path).ask(link).status == 200
    assert door(tmp_path).ask(link, f"/gradio_api/file={tmp_path}/x.wav").status == 403
    assert door(tmp_path).ask(link, "/gradio_api/queue/join", "POST").status == 403


def test_an_address_for_everybody_is_asked_for_by_numbers(tmp_path: Path) -> None:
    """Numbers cannot be rebound; names are those of `allow_hosts`."""
    for bound in ("0.0.0.0", "::"):
        page = door(tmp_path, bound)
        for host in ("127.0.0.1:7860", "localhost:7860", "192.168.1.5:7860", "[fe80::1]:7860"):
            assert page.ask({"host": host, "origin": f"http://{host}"}).status == 200
        for host in ("evil.example:7860", "192.168.1.5:7861", "192.168.1.5.evil.example:7860"):
            assert page.ask({"host": host}).status == 403
    page = door(tmp_path, "192.168.1.5")
    assert page.ask({"host": "192.168.1.5:7860"}).status == 200
    assert page.ask({"host": "127.0.0.1:7860"}).status == 403
    assert door(tmp_path, "::1").ask({"host": "[::1]:7860"}).status == 200
    assert door(tmp_path, "127.0.0.1", 80).ask({"host": "localhost", "origin": "http://localhost"}).status == 200


def test_further_names_are_allowed_with_a_port_or_for_any(tmp_path: Path) -> None:
    page = door(tmp_path, allowed=["Demo.example.org", "other.example:8443"])
    behind = {"host": "demo.example.org", "origin": "https://demo.example.org", "x-forwarded-proto": "https"}
    assert page.ask(behind).status == 200
    assert page.ask({"host": "demo.example.org:8080"}).status == 200
    assert page.ask({"host": "other.example:8443", "origin": "https://other.example:8443"}).status == 200
    for host in ("other.example", "evil.demo.example.org", "other.example:84430"):
        assert page.ask({"host": host}).status == 403
    assert page.ask(behind | {"origin": "https://evil.example"}).status == 403
    for wrong in ("http://demo.example.org", "*", "a b", ""):
        with pytest.raises(ConfigError, match=r"is no host's name, for example allow_hosts=\[demo\.example\.org\]"):
            demo_app_access.Hosts("127.0.0.1", 7860, [wrong])


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/monitoring"),
        ("GET", "/monitoring/summary"),
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/gradio_api/info"),
        ("GET", "/config"),
        ("GET", "/gradio_api/proxy=https://evil.example"),
        ("GET", "/gradio_api/file=https://evil.example/x"),
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/gradio_api/file={folder}/../secret"),
        ("GET", "/gradio_api/file={folder}-2/x.wav"),
        ("GET", "/static/../../secret"),
        ("POST", "/gradio_api/call/load_example"),
        ("POST", "/gradio_api/run/load_example"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/"),
        ("PUT", "/gradio_api/upload"),
        ("DELETE", "/"),
        ("OPTIONS", "/"),
        ("TRACE", "/"),
    ],
)
def test_what_the_page_does_not_need_is_closed(tmp_path: Path, method: str, path: str) -> None:
    page = door(tmp_path / "kept")
    answer = page.ask(HOST, path.format(folder=tmp_path / "kept"), method)
    assert answer == (404, "las demo_app: there is nothing here\n") and page.page.asked == []


def test_what_the_page_needs_is_open(tmp_path: Path) -> None:
    page = door(tmp_path)
    for path in (
        "/",
        "/assets/index.js",
        "/theme.css",
        f"/gradio_api/file={tmp_path}/a/x.wav",
        "/gradio_api/queue/data",
    ):
        assert page.ask(HOST, path).status == 200
    for path in (demo_app.UPLOAD, "/gradio_api/queue/join", "/gradio_api/run/predict"):
        assert page.ask(HOST, path, "POST").status == 200


def test_a_request_that_says_that_it_is_too_large_is_not_read(tmp_path: Path) -> None:
    page = door(tmp_path)
    most = LARGEST + demo_app_access.SMALL_BYTES
    answer = page.upload(CHUNK, **{"content-length": str(most + 1)})
    assert answer == (413, "las demo_app: a recording may have 0.001 MB: max_upload_mb=... allows more\n")
    assert page.upload(**{"content-length": "99999999999999999999"}).status == 413
    assert page.upload(**{"content-length": "-1"}).status == page.upload(**{"content-length": "1e3"}).status == 400
    assert page.page.asked == []
    assert page.upload(**{"content-length": str(most)}).status == 200
    # What brings no recording may not have the size of one.
    large = HOST | {"content-length": str(demo_app_access.SMALL_BYTES + 1)}
    assert page.ask(large, "/gradio_api/queue/join", "POST").status == 413


def test_a_request_that_grows_too_large_is_cut_off(tmp_path: Path) -> None:
    """It came in chunks, and promised nothing."""
    page = door(tmp_path)
    answer = page.upload(*[CHUNK] * 50)
    assert answer.status == 413 and page.page.is_disconnected and page.page.read == len(CHUNK)
    assert page.upload(CHUNK, b"x" * LARGEST).status == 200
    assert page.guard.num_arriving == 0


def test_recordings_that_are_kept_have_an_end(tmp_path: Path) -> None:
    page = door(tmp_path)
    (tmp_path / "sub").mkdir()
    for number in range(demo_app_access.NUM_STORED - 1):
        (tmp_path / "sub" / f"{number}.wav").write_bytes(bytes(LARGEST))
    assert page.upload().status == 200
    (tmp_path / "sub" / "one.wav").write_bytes(bytes(1))
    answer = page.upload()
    assert answer.status == 507 and "too many recordings are stored" in answer.body
    assert page.ask(HOST).status == 200
    (tmp_path / "sub" / "one.wav").unlink()
    page.guard.num_arriving = 1  # another one is arriving
    assert page.upload().status == 507


def test_errors_of_the_page_are_its_own(tmp_path: Path) -> None:
    class Broken(Page):
        async def __call__(self, *_: object) -> None:
            raise RuntimeError("broken")

    page = door(tmp_path)
    page.guard.app = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        page.upload()
    assert page.guard.num_arriving == 0


def test_websockets_are_closed_and_the_start_of_the_page_passes(tmp_path: Path) -> None:
    seen: list[str] = []

    async def page(scope: demo_app_access.Message, *_: object) -> None:
        seen.append(scope["type"])

    async def send(message: demo_app_access.Message) -> None:
        seen.append(message["type"])

    async def receive() -> demo_app_access.Message:
        return {}

    hosts = demo_app_access.Hosts("127.0.0.1", 7860)
    guard = demo_app_access.Guard(page, hosts, demo_app.paths(tmp_path), demo_app.UPLOAD, tmp_path, LARGEST)
    for kind in ("websocket", "lifespan"):
        asyncio.run(guard({"type": kind, "path": "/", "headers": []}, receive, send))
    assert seen == ["websocket.close", "lifespan"]
