"""Hostile archives: each is refused for its reason, and not a byte lies outside the folder afterwards."""

import gzip
import io
import os
import stat
import tarfile
import time
from pathlib import Path

import pytest
from tiers import rest_slow

from las.runtime.errors import DataError, StorageError
from las.storage import archive
from las.storage.archive import Caps

PLAIN = {"top/a.txt": b"first", "top/deep/b.bin": bytes(range(256)) * 10, "top/empty": b""}
ZEROS = 64 << 20


Member = tuple[tarfile.TarInfo, bytes]


def tar(path: Path, *members: Member, mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as file:
        for member, content in members:
            file.addfile(member, io.BytesIO(content))
    return path


def member(name: str, content: bytes = b"evil", **fields: object) -> Member:
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
CLASHES = [
    *(("a/File", "a/file"), ("Folder/x", "folder/y"), ("caf\u00e9", "cafe\u0301"), ("stra\u00dfe", "strasse")),
    *(("twice", "twice"), ("file", "file/below"), ("folder/x", "folder")),
]
LINK, HARD = {"type": tarfile.SYMTYPE}, {"type": tarfile.LNKTYPE}
LINKS = [
    [member("link", b"", linkname="../neighbour", **LINK), member("link/file.txt")],
    [member("link", b"", linkname="/etc", **LINK), member("link/las-evil")],
    [member("a"), member("link", b"", linkname="a", **LINK)],
    [member("link", b"", linkname="../neighbour/file.txt", **HARD), member("link")],
    [member("a"), member("link", b"", linkname="a", **HARD)],
    [member("tty", b"", type=tarfile.CHRTYPE, devmajor=5)],
    [member("disk", b"", type=tarfile.BLKTYPE, devmajor=8)],
    [member("pipe", b"", type=tarfile.FIFOTYPE)],
    [member("odd", b"", type=b"Z", linkname="x")],
]
HOSTILE = [
    *(([member("good.txt"), member(name)], "not a name") for name in NAMES),
    *((members, "neither a plain") for members in LINKS),
    *(([member("sh", mode=mode)], "as another user") for mode in (0o4755, 0o2755)),
    *(([*map(member, names)], "there already") for names in CLASHES),
]


@pytest.mark.parametrize(("members", "says"), HOSTILE)
def test_names_links_devices_and_clashes(tmp_path: Path, folder: Path, members: list[Member], says: str) -> None:
    for mode in ("w", "w:gz"):
        refused(tar(tmp_path / "evil.tar", *members, mode=mode), folder, f"refused at .*{says}")


def test_bombs_by_what_they_declare(tmp_path: Path, folder: Path) -> None:
    """10 GB in a tar.gz of a few hundred bytes, as content, as a long name, and as holes."""
    for kind in (tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.GNUTYPE_SPARSE):
        info, _ = member("bomb", type=kind, size=10 << 30)
        made = tmp_path / "bomb.tgz"
        made.write_bytes(gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20)))
        assert refused(made, folder, "swells|bytes long|neither a plain") < 2


def test_real_bombs_of_gigabytes(tmp_path: Path, folder: Path) -> None:
    """Of a file, and in the padding between headers: content that nothing declares, which is read and thrown away."""
    made, piece = tmp_path / "bomb.tgz", gzip.compress(bytes(ZEROS), 9)
    info, _ = member("bomb", size=160 * ZEROS)
    names = b"".join(tarfile.TarInfo(f"{number}").tobuf() for number in range(2000))
    for headers in (info.tobuf(), names):
        made.write_bytes(gzip.compress(headers) + piece * 160)
        assert refused(made, folder, "swells") < 2


def many_headers(count: int) -> bytes:
    """The headers of empty files many/0000000, many/0000001, ..."""
    first = tarfile.TarInfo("many/0000000").tobuf()
    checksum = int(first[148:154], 8) - 7 * ord("0")
    names = (b"%07d" % number for number in range(count))
    return b"".join(b"many/%b%b%06o%b" % (name, first[12:148], checksum + sum(name), first[154:]) for name in names)


@pytest.mark.parametrize("count", rest_slow([20_000, 1_000_000]))
@pytest.mark.parametrize("compressed", [True, False])
def test_many_empty_files(tmp_path: Path, folder: Path, compressed: bool, count: int) -> None:
    headers = many_headers(count)
    made = tmp_path / "many.tar"
    made.write_bytes(gzip.compress(headers, 1) if compressed else headers)
    assert refused(made, folder, "swells") < 2


def test_caps_can_be_narrower(tmp_path: Path, folder: Path) -> None:
    made = tar(tmp_path / "x.tgz", *(member(f"{number}", b"12345") for number in range(10)))
    archive.extract(made, folder, Caps(num_bytes=50, num_files=10))
    refused(made, folder.with_name("second"), "49 bytes", Caps(num_bytes=49))
    refused(made, folder.with_name("third"), "9 files", Caps(num_files=9))


def long_chain() -> bytes:
    """Headers that say that the next one has more to say, two thousand times."""
    info, _ = member("long", type=tarfile.GNUTYPE_LONGNAME, size=4)
    return (info.tobuf() + b"name".ljust(512, b"\0")) * 2000


def negative_size() -> bytes:
    """A header with a size of -256."""
    header = bytearray(tarfile.TarInfo("x").tobuf(tarfile.GNU_FORMAT))
    header[124:136] = b"\xff" * 11 + b"\x00"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    return bytes(header) + bytes(1024)


def test_damaged_archives_and_what_is_none(tmp_path: Path, folder: Path) -> None:
    made = tar(tmp_path / "x.tgz", member("a", os.urandom(5000)))
    whole = made.read_bytes()
    flipped = whole[:300] + bytes([whole[300] ^ 255]) + whole[301:]
    confusing = [gzip.compress(long_chain()), gzip.compress(negative_size())]
    others = [b"", b"<html>not found</html>", b"\x1f\x8b", b"PK\3\4", bytes(2000), b"BZh91AY"]
    for content in (whole[: len(whole) // 2], whole[:100], flipped, *confusing, *others):
        made.write_bytes(content)
        refused(made, folder, "not a tar|damaged|neither a plain")


def test_the_folder_must_be_new(tmp_path: Path, folder: Path) -> None:
    made = tar(tmp_path / "x.tgz", member("a"))
    folder.mkdir()
    (folder / "mine").write_text("mine")
    with pytest.raises(StorageError, match="not an empty"):
        archive.extract(made, folder)
    assert (folder / "mine").read_text() == "mine"
    (tmp_path / "link").symlink_to(tmp_path / "neighbour")
    (tmp_path / "file").write_text("")
    for place, says in (("link", "not an empty"), ("file/below", "cannot be unpacked")):
        with pytest.raises(StorageError, match=says):
            archive.extract(made, tmp_path / place)


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
