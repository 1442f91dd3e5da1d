"""The page of las demo_app as programs on this machine or in its network find it: a real process, and raw requests."""

import http.client
import importlib.util
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import local_server
import pytest
from demo_page import FORM, LIMIT_S, Served, file_data, form, serve
from tiny import sound, wav

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("gradio") is None, reason="gradio missing: `make demo_app` installs it"
    ),
]
HERE = ("127.0.0.1", "localhost", "::1", None)
MB = 1_000_000


@pytest.fixture(scope="module")
def served(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(trained / "run", tmp_path_factory.mktemp("served"), "search=beam", "max_upload_mb=2") as found:
        yield found


def sent(served: Served, recording: Path) -> str:
    """The path under which the page stores a recording that is sent to it."""
    status, text = served.upload(recording.read_bytes())
    assert status == 200
    (path,) = json.loads(text)
    return str(path)


def require_alive(served: Served, recording: Path) -> None:
    """The page transcribes what is sent to it."""
    status, text = served.transcribe(file_data(sent(served, recording)))
    assert status == 200 and "real-time factor" in text, text[-500:]


def test_no_file_but_those_sent_is_opened(served: Served, trained: Path) -> None:
    """Whether a file exists, is a pipe or never ends makes no difference to the answer."""
    secret = Path(shutil.copy(wav(trained, "mdab0_sx1"), served.folder / "secret.wav"))
    os.mkfifo(served.folder / "pipe.wav")
    own = Path(sent(served, secret))
    (own.parent / "link.wav").symlink_to(secret)
    (own.parent / "linked").symlink_to(served.folder)
    outside = [
        *(str(secret), str(served.folder / "absent.wav"), str(served.folder / "pipe.wav"), str(served.folder)),
        *("/dev/zero", "/dev/stdin", "/etc/passwd", "/proc/self/environ", "secret.wav", "~/.bashrc", "", "/"),
        *(f"{own}/../../../../../../secret.wav", f"{own.parent}/../../../../{served.folder.name}/secret.wav"),
        *(str(own.parent / "link.wav"), str(own.parent / "linked/secret.wav"), f"file://{secret}", f"file://{own}"),
    ]
    for path in outside:
        assert served.transcribe(file_data(path))[0] == 403, path
    hidden = [[{"x": [file_data("/dev/zero", is_stream=True)]}]]
    asked = {"data": [None, 4, 1.0], "fn_index": served.function, "session_hash": "s", "event_data": hidden}
    assert served.transcribe(None, hidden)[0] == 403  # in the place of a slider
    assert served.post("/gradio_api/queue/join", asked)[0] == 403
    require_alive(served, secret)


def test_no_url_is_fetched(served: Served, trained: Path) -> None:
    with local_server.serving() as site:
        site.files["/x.wav"] = wav(trained, "mdab0_sx1").read_bytes()
        public = "https://raw.githubusercontent.com/gradio-app/gradio/main/test/test_files/audio_sample.wav"
        for url in (f"{site.url}/x.wav", public, "HTTP://127.0.0.1/x.wav", "ftp://127.0.0.1/x.wav"):
            for more in ({}, {"is_stream": True}, {"url": url}):
                assert served.transcribe(file_data(url, **more))[0] == 403, url
                assert served.transcribe(None, file_data(url, **more))[0] == 403
            for prefix in ("file", "proxy"):
                assert served.ask("GET", f"/gradio_api/{prefix}={url}")[0] == 404
        own = sent(served, wav(trained, "mdab0_sx1"))
        status, _ = served.transcribe(file_data(own, url=f"{site.url}/x.wav"))
        assert status == 200 and site.asked == []
    assert [where for where in served.asked if where not in HERE] == []


def test_no_file_but_those_of_the_page_is_read(served: Served, trained: Path) -> None:
    secret = Path(shutil.copy(wav(trained, "mdab0_sx1"), served.folder / "secret.wav"))
    own = sent(served, secret)
    assert served.ask("HEAD", f"/gradio_api/file={own}")[0] == 200
    for path in ("/etc/passwd", str(secret), "secret.wav", f"{own}/../../../../../../secret.wav", "//etc/passwd"):
        assert served.ask("GET", f"/gradio_api/file={path}")[0] in (403, 404), path
        assert served.ask("GET", f"/gradio_api/file={path.replace('/', '%2f').replace('.', '%2e')}")[0] in (403, 404)
    assert served.ask("GET", "/config")[0] == served.post("/gradio_api/call/predict", {"data": [None]})[0] == 404
    assert served.ask("GET", "/", Host="evil.example")[0] == served.ask("GET", "/", Origin="null")[0] == 403
    for size in (1e9, -1, "4", None, [4]):
        assert "real-time factor" not in served.transcribe(file_data(own), size)[1]


def test_an_uploaded_page_runs_in_no_browser(served: Served) -> None:
    """It would be of the same origin as the page."""
    (path,) = json.loads(served.upload(b"<script>alert(1)</script>", name="x.html")[1])
    connection = http.client.HTTPConnection(served.address, timeout=LIMIT_S)
    connection.request("GET", f"/gradio_api/file={path}")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.getheader("content-disposition", "").startswith("attachment")
    connection.close()


def test_stalled_uploads_lock_nobody_out(served: Served, trained: Path) -> None:
    """Thirty of them, which have sent next to nothing, half of a recording, or not even all of the header."""
    head = b"POST /gradio_api/upload HTTP/1.1\r\nHost: " + served.address.encode()
    head += f"\r\nContent-Type: {FORM['Content_Type']}\r\nContent-Length: 2000000\r\n".encode()
    start = b"\r\n" + next(form())
    stalled = []
    host, _, port = served.address.partition(":")
    for number in range(30):
        stalled.append(socket.create_connection((host, int(port))))
        stalled[-1].sendall(head + (start + bytes(number % 10 * 100_000) if number % 3 else b""))
    for _ in range(3):
        require_alive(served, wav(trained, "mdab0_sx1"))
    for each in stalled:
        each.close()


def test_uploads_have_a_largest_size_and_the_oldest_make_room(served: Served, trained: Path) -> None:
    """Two megabytes here: what is larger is not stored, whether it says how large it is or not."""

    def upload(*contents: bytes, in_chunks: bool = False) -> int:
        parts = form(*contents)
        try:
            return served.ask("POST", "/gradio_api/upload", parts if in_chunks else b"".join(parts), **FORM)[0]
        except ConnectionError:  # the server hung up before all was sent
            return 413

    before = sorted(served.stored)
    for megabytes in (3, 50):
        for in_chunks in (False, True):
            assert upload(*[bytes(MB)] * megabytes, in_chunks=in_chunks) == 413
    assert sorted(served.stored) == before
    for number in range(30):
        assert upload(bytes([number]) * MB) == 200
    end = time.monotonic() + LIMIT_S
    while len(served.stored) > 20:  # of a megabyte each; deleted after the answer
        assert time.monotonic() < end
        time.sleep(0.1)
    stored = served.stored
    assert {path.read_bytes()[0] for path in stored} >= set(range(12, 30))  # the newest ones
    require_alive(served, wav(trained, "mdab0_sx1"))
    (example,) = served.kept[0].glob("*.wav")  # it stays
    status, text = served.transcribe(file_data(str(example)))
    assert status == 200 and "real-time factor" in text


def test_sigterm_ends_it_while_it_transcribes(trained: Path, tmp_path: Path) -> None:
    """And environment variables of gradio and of proxies open nothing."""
    opened = {"GRADIO_SHARE": "True", "GRADIO_ALLOWED_PATHS": "/", "GRADIO_NUM_WORKERS": "1", "GRADIO_ROOT_PATH": "/x"}
    proxies = {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1", "all_proxy": ""}
    limits = ["search=beam", "pieces.longest_s=5.0"]
    with serve(trained / "run", tmp_path, *limits, **opened, **proxies) as served:
        assert served.ask("GET", "/gradio_api/file=/etc/passwd")[0] == 403
        path = sent(served, sound(tmp_path / "long.wav", 1500.0))
        asked = {"data": [file_data(path), 32, 1.0], "fn_index": served.function, "session_hash": "s"}
        assert served.post("/gradio_api/queue/join", asked)[0] == 200
        connection = http.client.HTTPConnection(served.address, timeout=LIMIT_S)
        connection.request("GET", "/gradio_api/queue/data?session_hash=s")
        stream = connection.getresponse()
        while b"process_starts" not in stream.fp.readline():
            pass
        time.sleep(1.0)
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(LIMIT_S) == 0
        assert served.kept == []
        assert (served.folder / "out").read_text().splitlines()[-1] == "ended"
        assert (served.folder / "err").read_text() == ""
        connection.close()


def test_recordings_of_a_killed_server_are_gone_with_the_next(trained: Path, tmp_path: Path) -> None:
    with serve(trained / "run", tmp_path) as first:
        assert first.upload(b"a voice")[0] == 200
        first.process.kill()
        first.process.wait()
        (left,) = first.kept
        assert [path.read_bytes() for path in first.stored] == [b"a voice"]
    with serve(trained / "run", tmp_path) as second:
        (own,) = second.kept
        assert own != left
