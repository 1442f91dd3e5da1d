"""Hostile archives: each is refused for its reason, and not a byte lies outside the folder afterwards."""

import gzip
import io
import os
import stat
import tarfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from las.runtime.errors import DataError, StorageError
from las.storage import archive
from las.storage.archive import Caps

PLAIN = {"top/a.txt": b"first", "top/deep/b.bin": bytes(range(256)) * 10, "top/empty": b""}
ZEROS = 64 << 20


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:
        for member, content in members:
            file.addfile(member, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"evil", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, content


def outside(folder: Path) -> dict[str, tuple[int, int]]:
    """Everything around the target folder and the archives."""
    return {
        str(path): (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in [*folder.parent.rglob("*"), *Path("/tmp").glob("las-evil*")]
        if path != folder and folder not in path.parents and path.suffix not in (".tgz", ".tar")
    }


def refused(made: Path, folder: Path, says: str, caps: Caps = archive.DEFAULT_CAPS) -> float:
    """Seconds of computing that refusing took; checks that nothing is left anywhere."""
    before = outside(folder)
    started = time.process_time()
    with pytest.raises(DataError, match=says) as raised:
        archive.extract(made, folder, caps)
    elapsed = time.process_time() - started
    assert str(made) in str(raised.value)
    assert list(folder.iterdir()) == []
    assert outside(folder) == before
    return elapsed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "neighbour").mkdir()
    (tmp_path / "neighbour" / "file.txt").write_text("mine")
    return tmp_path / "target"


@pytest.mark.parametrize("kind", ["w", "w:gz"])
def test_what_is_plain_is_unpacked_as_it_is(tmp_path: Path, folder: Path, kind: str) -> None:
    made = tmp_path / "plain"
    top = member("top/folder", b"", type=tarfile.DIRTYPE, mode=0o2755)
    tar(made, *(member(f"./{name}", content) for name, content in PLAIN.items()), top, mode=kind)
    archive.extract(made, folder)
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    assert {name: path.read_bytes() for name, path in found.items() if path.is_file()} == PLAIN
    assert sorted(name for name, path in found.items() if path.is_dir()) == ["top", "top/deep", "top/folder"]
    assert not any(
        path.stat().st_mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IXUSR) for path in found.values() if path.is_file()
    )


NAMES = ["../evil", "a/../../evil", "/tmp/las-evil", "..", "a/..", "..\\evil", "C:\\evil", "c:evil", "a\x01b", "a\nb"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["w", "w:gz"])
def test_names_that_lead_outside(tmp_path: Path, folder: Path, kind: str, name: str) -> None:
    made = tar(tmp_path / "evil.tar", member("good.txt", b"good"), member(name), mode=kind)
    refused(made, folder, "refused at .*not a name within a folder")


LINKS = {
    "symlink out": [member("link", b"", type=tarfile.SYMTYPE, linkname="../neighbour"), member("link/file.txt")],
    "absolute symlink": [member("link", b"", type=tarfile.SYMTYPE, linkname="/etc"), member("link/las-evil")],
    "symlink within": [member("a"), member("link", b"", type=tarfile.SYMTYPE, linkname="a")],
    "hardlink out": [member("link", b"", type=tarfile.LNKTYPE, linkname="../neighbour/file.txt"), member("link")],
    "hardlink within": [member("a"), member("link", b"", type=tarfile.LNKTYPE, linkname="a")],
    "character device": [member("tty", b"", type=tarfile.CHRTYPE, devmajor=5)],
    "block device": [member("disk", b"", type=tarfile.BLKTYPE, devmajor=8)],
    "fifo": [member("pipe", b"", type=tarfile.FIFOTYPE)],
    "unknown type": [member("odd", b"", type=b"Z", linkname="x")],
}


@pytest.mark.parametrize("what", LINKS)
def test_links_and_devices(tmp_path: Path, folder: Path, what: str) -> None:
    refused(tar(tmp_path / "evil.tgz", *LINKS[what]), folder, "neither a plain file nor a folder")


@pytest.mark.parametrize("mode", [0o4755, 0o2755])
def test_files_that_would_run_as_another_user(tmp_path: Path, folder: Path, mode: int) -> None:
    refused(tar(tmp_path / "evil.tgz", member("sh", mode=mode)), folder, "run as another user")


CLASHES = [
    ("a/File", "a/file"),
    ("Folder/x", "folder/y"),
    ("caf\u00e9", "cafe\u0301"),
    ("stra\u00dfe", "strasse"),
    ("twice", "twice"),
    ("file", "file/below"),
    ("folder/x", "folder"),
]


@pytest.mark.parametrize("names", CLASHES)
def test_names_that_clash(tmp_path: Path, folder: Path, names: tuple[str, str]) -> None:
    refused(tar(tmp_path / "evil.tgz", *map(member, names)), folder, "is there already")


def test_bombs_by_what_they_declare(tmp_path: Path, folder: Path) -> None:
    """10 GB in a tar.gz of a few hundred bytes, as content, as a long name, and as holes."""
    for fields in ({}, {"type": tarfile.GNUTYPE_LONGNAME}, {"type": tarfile.XHDTYPE}, {"type": tarfile.GNUTYPE_SPARSE}):
        info = tarfile.TarInfo("bomb")
        info.size = 10 << 30
        for key, value in fields.items():
            setattr(info, key, value)
        made = tmp_path / "bomb.tgz"
        made.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
        assert refused(made, folder, "swells|bytes long|neither a plain") < 2


def gzip_bomb(path: Path, parts: int) -> Path:
    """A tar.gz whose one file is `parts` times 64 MiB of zeros; built from a repeated piece, so quickly."""
    info = tarfile.TarInfo("bomb")
    info.size = parts * ZEROS
    piece = gzip.compress(bytes(ZEROS), 9)
    path.write_bytes(gzip.compress(info.tobuf()) + piece * parts)
    return path


def test_a_real_bomb_of_10_gigabytes(tmp_path: Path, folder: Path) -> None:
    made = gzip_bomb(tmp_path / "bomb.tgz", 160)
    assert made.stat().st_size < 20_000_000
    assert refused(made, folder, "swells to more than 20 times") < 2


def test_a_bomb_that_hides_in_the_padding_between_headers(tmp_path: Path, folder: Path) -> None:
    """Content that nothing declares is read and thrown away; that is bounded, too."""
    made = tmp_path / "bomb.tgz"
    names = b"".join(tarfile.TarInfo(f"{number}").tobuf() for number in range(2000))
    made.write_bytes(gzip.compress(names + bytes(ZEROS), 9) + gzip.compress(bytes(ZEROS), 9) * 100)
    assert refused(made, folder, "swells") < 2


def many_headers(count: int) -> bytes:
    """The headers of empty files many/0000000, many/0000001, ..."""
    first = tarfile.TarInfo("many/0000000").tobuf()
    checksum = int(first[148:154], 8) - 7 * ord("0")
    names = (b"%07d" % number for number in range(count))
    return b"".join(b"many/%b%b%06o%b" % (name, first[12:148], checksum + sum(name), first[154:]) for name in names)


@pytest.mark.parametrize("compressed", [True, False])
def test_many_empty_files(tmp_path: Path, folder: Path, compressed: bool) -> None:
    headers = many_headers(20_000)
    made = tmp_path / "many.tar"
    made.write_bytes(gzip.compress(headers, 6) if compressed else headers)
    assert refused(made, folder, "swells") < 2


@pytest.mark.slow
@pytest.mark.parametrize("compressed", [True, False])
def test_a_million_files(tmp_path: Path, folder: Path, compressed: bool) -> None:
    made = tmp_path / "many.tar"
    headers = many_headers(1_000_000)
    made.write_bytes(gzip.compress(headers, 1) if compressed else headers)
    assert refused(made, folder, "swells") < 2


def test_caps_can_be_narrower(tmp_path: Path, folder: Path) -> None:
    made = tar(tmp_path / "x.tgz", *(member(f"{number}", b"12345") for number in range(10)))
    archive.extract(made, folder, Caps(num_bytes=50, num_files=10))
    refused(made, folder.with_name("second"), "more than 49 bytes", Caps(num_bytes=49))
    refused(made, folder.with_name("third"), "more than 9 files", Caps(num_files=9))


def long_chain() -> bytes:
    """Headers that say that the next one has more to say, two thousand times."""
    info = tarfile.TarInfo("long")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4
    return (info.tobuf() + b"name".ljust(512, b"\0")) * 2000


DAMAGED: dict[str, Callable[[bytes], bytes]] = {
    "cut": lambda content: content[: len(content) // 2],
    "cut in a header": lambda content: content[:100],
    "flipped": lambda content: content[:300] + bytes([content[300] ^ 255]) + content[301:],
}


@pytest.mark.parametrize("how", DAMAGED)
def test_damaged_archives(tmp_path: Path, folder: Path, how: str) -> None:
    noise = os.urandom(5000)
    made = tar(tmp_path / "x.tgz", member("a", noise))
    made.write_bytes(DAMAGED[how](made.read_bytes()))
    refused(made, folder, "damaged")


@pytest.mark.parametrize("content", [b"", b"<html>not found</html>", b"\x1f\x8b", b"PK\3\4", bytes(2000), b"BZh91AY"])
def test_what_is_no_archive(tmp_path: Path, folder: Path, content: bytes) -> None:
    made = tmp_path / "x.tgz"
    made.write_bytes(content)
    refused(made, folder, "not a tar or tar.gz file|damaged")


def test_archives_that_confuse_the_standard_library(tmp_path: Path, folder: Path) -> None:
    made = tmp_path / "x.tgz"
    made.write_bytes(gzip.compress(long_chain()))
    refused(made, folder, "damaged")
    negative = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    negative[124:136] = b"\xff" * 11 + b"\x00"  # a size of -256
    negative[148:156] = b" " * 8
    negative[148:156] = b"%06o\0 " % sum(negative[:512])
    made.write_bytes(gzip.compress(bytes(negative) + bytes(1024)))
    refused(made, folder, "damaged|neither a plain")


def test_the_folder_must_be_new(tmp_path: Path, folder: Path) -> None:
    made = tar(tmp_path / "x.tgz", member("a"))
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(StorageError, match="not an empty folder"):
        archive.extract(made, folder)
    assert (folder / "mine").read_text() == "mine"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "neighbour")
    with pytest.raises(StorageError, match="not an empty folder"):
        archive.extract(made, link)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be unpacked"):
        archive.extract(made, tmp_path / "file" / "below")


def test_a_folder_that_cannot_be_written(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tar(tmp_path / "x.tgz", member("a"), member("b"))
    opened = Path.open

    def full(self: Path, mode: str = "r", *rest: object) -> object:
        if self.name == "b" and mode == "xb":
            raise OSError(28, "No space left on device")
        return opened(self, mode, *rest)

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(StorageError, match="No space left"):
        archive.extract(made, folder)
    assert list(folder.iterdir()) == []


def test_zeros_that_are_compressed_twice_are_not_unpacked_twice(tmp_path: Path, folder: Path) -> None:
    inner = zlib.compress(bytes(ZEROS))
    archive.extract(tar(tmp_path / "x.tgz", member("inner.zip", inner)), folder)
    assert (folder / "inner.zip").read_bytes() == inner
