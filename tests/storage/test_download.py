"""Downloads against a server that drops, lies and redirects: nothing but the right file is ever accepted."""

import hashlib
import random
import shutil
import ssl
import urllib.error
import urllib.request
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import local_server
import pytest
from local_server import Site, says

from las.runtime.errors import ConfigError, DataError, StorageError
from las.storage import download

CONTENT = random.Random(0).randbytes(600_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NEVER = [
    *("http://example.com/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "http://127.0.0.1.example.com/x", "x.tar.gz"),
    *("http://[::2]/x", "gopher://127.0.0.1/x"),
]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "_WAIT_S", 0.0)


@pytest.fixture
def site() -> Iterator[Site]:
    with local_server.serving() as site:
        site.files["/x.bin"] = CONTENT
        yield site


def fetch(site: Site, path: Path) -> Path:
    return download.fetch(f"{site.url}/x.bin", path, len(CONTENT), SHA256)


def refused(site: Site, path: Path, says: str, error: type[Exception] = DataError) -> None:
    with pytest.raises(error, match=says):
        fetch(site, path)
    assert not path.exists()


def test_the_right_file_is_kept_and_a_wrong_one_replaced(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.bin"
    assert fetch(site, path) == path
    assert path.read_bytes() == CONTENT
    assert [entry.name for entry in path.parent.iterdir()] == ["x.bin"]
    fetch(site, path)
    assert len(site.asked) == 1
    path.write_bytes(CONTENT[:-1] + b"?")
    assert fetch(site, path).read_bytes() == CONTENT


def test_fifty_drops_in_one_download(site: Site, tmp_path: Path) -> None:
    site.drops = sorted(random.Random(1).sample(range(1, len(CONTENT)), 50))
    assert fetch(site, tmp_path / "x.bin").read_bytes() == CONTENT
    assert len(site.asked) == 51
    assert site.asked[1][1].startswith("bytes=") and site.asked[0][1] == ""


def test_a_download_that_ends_anywhere_continues_there(site: Site, tmp_path: Path) -> None:
    """What is there is not sent again: a part of any length, a whole one, and one that is too long."""
    generator = random.Random(0)
    for have in [*(generator.randrange(1, len(CONTENT)) for _ in range(50)), len(CONTENT), len(CONTENT) + 4]:
        path = tmp_path / f"{have}.bin"
        path.with_name(f"{have}.bin.part").write_bytes((CONTENT + b"more")[:have])
        before = len(site.asked)
        assert fetch(site, path).read_bytes() == CONTENT
        request = [f"bytes={have}-"] if have < len(CONTENT) else [""] * (have > len(CONTENT))
        assert [range_asked for _, range_asked in site.asked[before:]] == request


@pytest.mark.parametrize("planted", ["link", "hard link", "folder"])
def test_a_part_that_no_download_began_is_refused(site: Site, tmp_path: Path, planted: str) -> None:
    theirs, part = tmp_path / "thesis.txt", tmp_path / "x.bin.part"
    theirs.write_text("hers")
    {"link": part.symlink_to, "hard link": part.hardlink_to, "folder": lambda _: part.mkdir()}[planted](theirs)
    refused(site, tmp_path / "x.bin", r"x\.bin\.part: a link", StorageError)
    assert theirs.read_text() == "hers" and site.asked == []


def test_a_part_of_another_file_is_thrown_away(site: Site, tmp_path: Path) -> None:
    path, part = tmp_path / "x.bin", tmp_path / "x.bin.part"
    part.write_bytes(bytes(1000))
    refused(site, path, f"its sha256 is .*, expected {SHA256}")
    assert not part.exists()
    part.write_bytes(bytes(1000))
    site.answers = [says(200, CONTENT)]  # a server that cannot continue starts again
    assert fetch(site, path).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says(200, b"<html>Please log in</html>", {"Content-Type": "text/html"}), "26 bytes of"),
        (says(200, b"<html>".ljust(len(CONTENT)), {"Content-Type": "text/html"}), "its sha256 is"),
        (says(200, CONTENT[:-1]), "599999 bytes of .*600,000"),
        (says(200, CONTENT + b"x"), "600001 bytes"),
        (says(200, CONTENT + b"x", promised=-1), "more than the 600,000"),
        (says(200, CONTENT[:-1] + b"?"), "its sha256 is"),
        (says(200, b""), "sends 0 bytes"),
        (says(404, b"<html>not found</html>"), "404"),
        (says(403), "403"),
        (says(416), "416"),
        (says(302, headers={"Location": "file:///etc/passwd"}), "not allowed"),
        (says(302, headers={"Location": "gopher://127.0.0.1/x"}), "not allowed"),
        (says(308, headers={"Location": "http://example.com/x"}), "https only"),
        (says(303, headers={"Location": "ftp://127.0.0.1/x.bin"}), "https only"),
    ],
)
def test_what_is_not_the_file_is_refused_at_once(
    site: Site, tmp_path: Path, answer: local_server.Answer, reason: str
) -> None:
    site.answers = [answer]
    refused(site, tmp_path / "x.bin", reason)
    assert len(site.asked) == 1


def test_redirects_on_this_machine_are_followed(site: Site, tmp_path: Path) -> None:
    site.answers = [says(302, headers={"Location": "/elsewhere.bin"})]
    site.files["/elsewhere.bin"] = CONTENT
    assert fetch(site, tmp_path / "x.bin").read_bytes() == CONTENT
    site.answers = [says(302, headers={"Location": "/x.bin"})] * 20
    refused(site, tmp_path / "y.bin", "infinite loop|redirect")


@pytest.mark.parametrize("asked", ["https://www.openslr.org/x", "http://127.0.0.1:8/x"])
def test_which_addresses_are_safe(asked: str, tmp_path: Path) -> None:
    request = urllib.request.Request(asked)
    redirects = download._Redirects()
    followed = redirects.redirect_request(request, None, 302, "Found", {}, "https://mirror.example.org/x")
    assert followed is not None and followed.full_url == "https://mirror.example.org/x"
    for url in NEVER + ["http://127.0.0.1:8/x"] * asked.startswith("https"):
        with pytest.raises(DataError, match="https only"):
            redirects.redirect_request(request, None, 302, "Found", {}, url)
    for url in NEVER:
        with pytest.raises(ConfigError, match="https only"):
            download.fetch(url, tmp_path / "x", 1, SHA256)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("status", [500, 502, 503, 429, 408])
def test_servers_that_are_busy_are_asked_again(site: Site, tmp_path: Path, status: int) -> None:
    site.answers = [says(status)] * 4
    assert fetch(site, tmp_path / "x.bin").read_bytes() == CONTENT
    site.answers = [says(status)] * 5
    refused(site, tmp_path / "y.bin", f"{status}.*same command")
    assert site.answers == []


def test_a_server_that_never_gets_further_is_given_up(site: Site, tmp_path: Path) -> None:
    site.drops = [1000] + [1000] * 5
    refused(site, tmp_path / "x.bin", r"1,000 of 600,000.*continues .*x\.bin\.part")
    assert (tmp_path / "x.bin.part").read_bytes() == CONTENT[:1000]
    assert len(site.asked) == 6


@pytest.mark.parametrize("promised", ["bytes 999-599999/600000", "bytes 1000-700000/700001", ""])
def test_a_server_that_continues_with_something_else(site: Site, tmp_path: Path, promised: str) -> None:
    (tmp_path / "x.bin.part").write_bytes(CONTENT[:1000])
    site.answers = [says(206, CONTENT[1000:], {"Content-Range": promised})]
    refused(site, tmp_path / "x.bin", "server continues with")
    assert fetch(site, tmp_path / "x.bin").read_bytes() == CONTENT


def test_no_server_and_no_room(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="refused"):
        download.fetch("http://127.0.0.1:9/x.bin", tmp_path / "x.bin", 5, SHA256)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        fetch(site, tmp_path / "file" / "x.bin")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    refused(site, tmp_path / "x.bin", "600,000 bytes, 1,000", StorageError)
    assert site.asked == []


def test_a_certificate_that_is_wrong_is_not_asked_for_again() -> None:
    wrong = urllib.error.URLError(ssl.SSLCertVerificationError("self-signed certificate"))
    assert not download._is_transient(wrong)
    assert download._is_transient(urllib.error.URLError(TimeoutError("timed out")))
