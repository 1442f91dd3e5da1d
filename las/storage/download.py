"""Resumable downloads, accepted only with the expected size and hash.

Only https is used, also after redirects; plain http is allowed for servers on this machine.
"""

import hashlib
import http.client
import os
import shutil
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from las.runtime import progress
from las.runtime.errors import ConfigError, DataError, StorageError

_CHUNK = 1 << 20
_ATTEMPTS = 5  # consecutive ones without new bytes; each waits twice as long as the one before
_WAIT_S = 1.0
_TIMEOUT_S = 60.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_TRANSIENT = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)  # and all of 500 and above


class _Dropped(Exception):
    """End of a connection before the end of the file."""


def fetch(url: str, path: Path, size: int, sha256: str) -> Path:
    """Download a file of `size` bytes with the hash `sha256` (hex).

    Bytes go to `<path>.part`, which the next call continues; only what has the right size and hash becomes `path`. A
    file that is there and right already is not fetched again. Raises ConfigError for a url that is not https, DataError
    for what the server sends instead of the file and when it cannot be reached, and StorageError where it cannot be
    written.
    """
    _require_safe(url, url)
    part = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and path.stat().st_size == size and _sha256(path) == sha256:
            return path
        _require_space(path, size - _num_fetched(part))
        _fetch_all(url, part, size)
        if (found := _sha256(part)) != sha256:
            part.unlink()
            wrong = f"its sha256 is {found}, expected {sha256}"
            raise DataError(f"{url}: not the file that was expected: {wrong}. It was thrown away; try again")
        os.replace(part, path)
    except OSError as error:
        raise StorageError(f"{part}: cannot be written ({error.strerror or error})") from error
    return path


def _fetch_all(url: str, part: Path, size: int) -> None:
    """Download until `part` has its full size, over as many connections as needed."""
    failures = 0
    while (num_bytes := _num_fetched(part)) != size:
        if num_bytes > size:
            part.unlink()
            continue
        try:
            _fetch_rest(url, part, num_bytes, size)
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, _Dropped) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)  # what the server has is shorter than what was begun
            failures = 0 if _num_fetched(part) > num_bytes else failures + 1
            if failures == _ATTEMPTS or not _is_transient(error):
                raise DataError(
                    f"{url}: cannot be downloaded ({error}). The same command tries again, and continues {part} if "
                    "that is there"
                ) from error
            time.sleep(_WAIT_S * 2**failures)


def _num_fetched(part: Path) -> int:
    """Bytes that are fetched so far. Raises StorageError for what no download began: a link may lead anywhere."""
    try:
        status = os.lstat(part)
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise StorageError(f"{part}: a link or no regular file, which no download began: remove it")
    return status.st_size


def _fetch_rest(url: str, part: Path, num_bytes: int, size: int) -> None:
    """Append the bytes of one connection to the `num_bytes` existing ones, never more than `size` in total."""
    request = urllib.request.Request(url, headers={"User-Agent": "las", "Accept-Encoding": "identity"})
    if num_bytes:
        request.add_header("Range", f"bytes={num_bytes}-")
    proxies: dict[str, str] | None = {} if _is_local(url) else None  # None: those of the environment
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies), _Redirects)
    with opener.open(request, timeout=_TIMEOUT_S) as response:
        if response.status == HTTPStatus.PARTIAL_CONTENT:
            promised = response.headers.get("Content-Range", "")
            if promised != f"bytes {num_bytes}-{size - 1}/{size}":
                part.unlink(missing_ok=True)  # the partial file does not match the server's range
                raise DataError(f"{url}: the server continues with {promised!r}, expected a file of {size:,} bytes")
        else:
            num_bytes = 0
            promised = response.headers.get("Content-Length", str(size))
            if promised != str(size):
                kind = response.headers.get("Content-Type", "unknown content")
                raise DataError(
                    f"{url}: the server sends {promised} bytes of {kind}, expected {size:,}: not the file, or another "
                    "version of it. Nothing was kept"
                )
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_APPEND if num_bytes else os.O_TRUNC)
        with os.fdopen(os.open(part, flags, 0o666), "wb") as file:
            for chunk in _chunks(response, part.stem, num_bytes, size):
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())


def _chunks(response: Any, name: str, num_bytes: int, size: int) -> Iterator[bytes]:
    """Read chunks until the file has its size. Raises _Dropped for a shorter response, DataError for a longer one."""
    total = -(-(size - num_bytes) // _CHUNK)
    for _ in progress.counted(range(total), total, f"{name}: MiB fetched"):
        chunk = response.read(min(_CHUNK, size - num_bytes))
        num_bytes += len(chunk)
        yield chunk
        if not chunk:
            break
    if num_bytes < size:
        raise _Dropped(f"the connection ended after {num_bytes:,} of {size:,} bytes")
    if response.read(1):
        raise DataError(f"the server sends more than the {size:,} bytes of {name}: another version of it?")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Redirect handler that follows https only; a server on this machine may redirect to itself."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        _require_safe(newurl, req.full_url)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in _LOOPBACK


def _require_safe(url: str, requested: str) -> None:
    """Raise ConfigError for a url that is neither https nor local, DataError for a redirect to one."""
    if urlsplit(url).scheme == "https" or (_is_local(url) and _is_local(requested)):
        return
    if url != requested:
        raise DataError(
            f"{requested}: leads to {url}: las downloads by https only. Fetch the file by hand if you trust it"
        )
    raise ConfigError(f"{url}: las downloads by https only. Fetch the file by hand if you trust the source")


def _is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later: the server did not refuse it."""
    if isinstance(error, urllib.error.HTTPError):
        return error.code >= 500 or error.code in _TRANSIENT
    return not isinstance(getattr(error, "reason", None), ssl.SSLCertVerificationError)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _require_space(path: Path, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise StorageError(f"{path}: needs {needed:,} bytes, {free:,} are free. Make room, or choose another folder")
