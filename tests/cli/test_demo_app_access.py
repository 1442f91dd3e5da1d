"""Requests to the page of las demo_app, sent to the ASGI application itself: its own are answered, hostile ones not."""

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from las.cli import demo_app_access

LARGEST = 1000
HOST = {"host": "127.0.0.1:7860"}
CHUNK = b"x" * demo_app_access.SMALL_BYTES
STALLED = b"stalled"
"""A part of a body that does not come."""


class Answered(NamedTuple):
    status: int
    body: str


class Page:
    """What stands behind the guard: it reads all that it is sent, and says so."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.read = b""

    async def __call__(
        self, scope: demo_app_access.Message, receive: demo_app_access.Receive, send: demo_app_access.Send
    ) -> None:
        self.asked.append(f"{scope['method']} {scope['path']}")
        while True:
            message = await receive()
            self.read += message["body"]
            if not message.get("more_body"):
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
            if content is STALLED:
                await asyncio.sleep(60)
            return {"type": "http.request", "body": content, "more_body": more}

        async def send(message: demo_app_access.Message) -> None:
            sent.append(message)

        asyncio.run(self.guard(scope, receive, send))
        assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
        return Answered(sent[0]["status"], sent[1]["body"].decode())

    def upload(self, *chunks: bytes, **headers: str) -> Answered:
        return self.ask(HOST | headers, demo_app_access.UPLOAD, "POST", chunks or (b"",))

    def post(self, body: bytes, path: str = "/gradio_api/queue/join") -> Answered:
        return self.ask(HOST, path, "POST", (body[:5], body[5:]))


def door(folder: Path, *names: str) -> Door:
    page = Page()
    (folder / "recordings").mkdir(parents=True, exist_ok=True)
    return Door(demo_app_access.Guard(page, names, folder, LARGEST), page)


NAMES = ("demo.example.org", "other.example:8443")
ANSWERED = ["127.0.0.1:7860", "localhost:7860", "LOCALHOST", "[::1]:7860", "192.168.1.5:7860", "[fe80::1]:7860"]
ANSWERED += ["demo.example.org", "Demo.example.org:8080", "other.example:8443"]
REFUSED = [
    *("evil.example", "evil.example:7860"),  # rebound to 127.0.0.1
    *("127.0.0.1.evil.example:7860", "localhost.evil.example:7860", "demo.example.org.evil.example"),
    *("127.0.0.1:7860@evil.example", "evil.example/127.0.0.1:7860", "127.0.0.1:7860, evil.example"),
    *("evil.example\n127.0.0.1", "other.example", "other.example:84430", "", " ", "\xe9vil.example"),
]


@pytest.mark.parametrize("host", ANSWERED)
def test_this_machine_and_names_that_are_allowed_are_answered(tmp_path: Path, host: str) -> None:
    """Numbers cannot be rebound, and another port is that of a tunnel."""
    page = door(tmp_path, *NAMES)
    own = {"origin": f"http://{host}", "sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}
    assert page.ask({"host": host}) == (200, "welcome")
    assert page.ask({"host": host, "sec-fetch-site": "none", "sec-fetch-dest": "document"}) == (200, "welcome")
    assert page.ask({"host": host} | own, demo_app_access.UPLOAD, "POST") == (200, "welcome")
    behind = {"host": host, "origin": f"https://{host}", "x-forwarded-proto": "https"}  # a server in front
    assert page.ask(behind).status == 200 and page.ask(behind | {"origin": "https://evil.example"}).status == 403


@pytest.mark.parametrize("host", REFUSED)
def test_another_name_is_refused(tmp_path: Path, host: str) -> None:
    page = door(tmp_path, *NAMES)
    for path, method in (("/", "GET"), ("/theme.css", "HEAD"), ("/gradio_api/queue/join", "POST")):
        answer = page.ask({"host": host}, path, method)
        assert answer.status == 403 and "allow_hosts=[...]" in answer.body
    assert page.ask([]).status == 403
    assert page.page.asked == []


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
    for path, method in (("/", "GET"), (demo_app_access.UPLOAD, "POST"), ("/gradio_api/queue/join", "POST")):
        assert page.ask(HOST | headers, path, method).status == 403
    assert page.page.asked == []


def test_a_link_from_another_site_may_lead_to_the_page(tmp_path: Path) -> None:
    link = HOST | {"sec-fetch-site": "cross-site", "sec-fetch-dest": "document", "sec-fetch-mode": "navigate"}
    assert door(tmp_path).ask(link).status == 200
    assert door(tmp_path).ask(link, f"/gradio_api/file={tmp_path}/x.wav").status == 403
    assert door(tmp_path).ask(link, "/gradio_api/queue/join", "POST").status == 403


@pytest.mark.parametrize(
    "request_line",
    [
        *("GET /monitoring", "GET /monitoring/summary", "GET /openapi.json", "GET /docs", "GET /config"),
        *("GET /gradio_api/openapi.json", "GET /gradio_api/info", "GET /gradio_api/proxy=https://evil.example"),
        *("GET /gradio_api/file=https://evil.example/x", "GET /gradio_api/file={folder}/../secret"),
        *("GET /gradio_api/file=x.wav", "GET /static/../../secret", "POST /gradio_api/call/load_example"),
        *("POST /gradio_api/run/load_example", "POST /gradio_api/component_server", "POST /"),
        *("PUT /gradio_api/upload", "DELETE /", "OPTIONS /"),
    ],
)
def test_what_the_page_does_not_need_is_closed(tmp_path: Path, request_line: str) -> None:
    page = door(tmp_path / "kept")
    method, _, path = request_line.partition(" ")
    assert page.ask(HOST, path.format(folder=tmp_path / "kept"), method).status == 404 and page.page.asked == []


def test_what_the_page_needs_is_open(tmp_path: Path) -> None:
    page = door(tmp_path)
    for path in ("", "assets/index.js", "theme.css", f"gradio_api/file={tmp_path}/a/x.wav", "gradio_api/queue/data"):
        assert page.ask(HOST, f"/{path}").status == 200
    assert page.upload().status == 200
    for path in ("/gradio_api/queue/join", "/gradio_api/run/predict"):
        assert page.post(b'{"data": [1, null]}', path).status == 200


def test_a_form_names_files_of_the_folder_only(tmp_path: Path) -> None:
    page = door(tmp_path)
    inside = json.dumps({"data": [{"path": f"{tmp_path}/x.wav"}, {"a": [{"path": f"{tmp_path}/recordings/y"}]}]})
    assert page.post(inside.encode()).status == 200 and page.page.read == inside.encode()
    (tmp_path / "link").symlink_to("/etc")
    for path in ("/etc/passwd", f"{tmp_path}/../x", f"{tmp_path}/link/passwd", "x.wav", "http://x.example/y", ""):
        for form in ({"path": path}, {"data": [[{"x": {"path": path}}]]}):
            assert page.post(json.dumps(form).encode()).status == 403
    twice = f'{{"path": "{tmp_path}/x.wav", "path": "/etc/passwd"}}'
    assert page.post(twice.encode()).status == page.post(b'{"\\u0070ath": "/dev/zero"}').status == 403
    other = f'{{"path": "/etc/passwd", "path": "{tmp_path}/x.wav"}}'.encode()
    assert page.post(other).status == 200 and b"passwd" not in page.page.read[len(inside) :]
    for wrong in (b"", b"no form", b"[" * 100_000, b'{"path": 1}', b'{"path": "\\u0000"}'):
        assert page.post(wrong).status == 400


def test_a_request_that_is_too_large_is_cut_off(tmp_path: Path) -> None:
    page = door(tmp_path)
    answer = page.upload(*[CHUNK] * 50)
    assert answer.status == 413 and "max_upload_mb=..." in answer.body
    assert len(page.page.read) == len(CHUNK)
    assert page.upload(CHUNK, b"x" * LARGEST).status == 200
    # What brings no recording may not have the size of one.
    assert page.post(CHUNK + b"x").status == 413
    assert page.guard.arriving_bytes == 0


def test_a_request_that_stalls_or_lasts_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = door(tmp_path)
    for name in ("STALLED_S", "LONGEST_S"):
        with monkeypatch.context() as patch:
            patch.setattr(demo_app_access, name, 0.05)
            answer = page.upload(b"x", STALLED, b"y")
        assert answer.status == 408 and page.guard.arriving_bytes == 0
    assert page.upload(b"x").status == 200


def test_so_many_bytes_may_arrive_at_a_time(tmp_path: Path) -> None:
    page = door(tmp_path)
    most = demo_app_access.NUM_STORED * (LARGEST + len(CHUNK))
    page.guard.arriving_bytes = most - 2  # of others
    assert page.upload(b"x").status == 200
    assert page.upload(b"x", b"y", b"z").status == 503
    assert page.guard.arriving_bytes == most - 2


def test_the_oldest_recordings_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, folder = door(tmp_path), tmp_path / "recordings"
    (tmp_path / "example.wav").write_bytes(bytes(LARGEST))
    for number in range(demo_app_access.NUM_STORED + 3):
        (folder / str(number)).mkdir()
        (folder / str(number) / "x.wav").write_bytes(bytes(LARGEST))
        os.utime(folder / str(number) / "x.wav", (number, number))
    assert page.ask(HOST).status == 200 and len(list(folder.rglob("*.wav"))) == demo_app_access.NUM_STORED + 3
    assert page.upload().status == 200
    kept = sorted(int(path.parent.name) for path in folder.rglob("*.wav"))
    assert kept == list(range(3, demo_app_access.NUM_STORED + 3)) and (tmp_path / "example.wav").exists()
    monkeypatch.setattr(demo_app_access, "NUM_FILES", 2)
    page.upload()
    assert sorted(path.parent.name for path in folder.rglob("*.wav")) == ["11", "12"]


def test_errors_of_the_page_are_its_own(tmp_path: Path) -> None:
    class Broken(Page):
        async def __call__(self, *_: object) -> None:
            raise RuntimeError("broken")

    page = door(tmp_path)
    page.guard.app = Broken()
    with pytest.raises(RuntimeError, match="broken"):
        page.upload()
    assert page.guard.arriving_bytes == 0
