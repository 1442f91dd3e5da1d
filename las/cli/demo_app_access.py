"""Access control of `las demo_app`: only requests of its own page, under its own address, not too large.

Any site open in a browser on this machine can send requests to 127.0.0.1, and can give 127.0.0.1 a name of its own (DNS
rebinding). Such requests are recognised by their headers Host, Origin and Sec-Fetch-*
(https://www.w3.org/TR/fetch-metadata/). `Guard` is an ASGI middleware, independent of the application behind it.
"""

import ipaddress
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

from las.runtime.errors import ConfigError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
AUTHORITY = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
DEFAULT_PORTS = {"http": 80, "https": 443}
SMALL_BYTES = 1 << 20
"""Bytes of a request without a recording, and of what surrounds a recording in one with it."""
NUM_STORED = 10
"""The number of recordings of the largest size that may be stored at a time."""


class Refusal(NamedTuple):
    """The answer to a refused request: an HTTP status, and a sentence that says why."""

    status: int
    reason: str


class Hosts:
    """The host names under which the page may be requested.

    Args:
        host: the address the server is bound to; 0.0.0.0 and :: accept every IP address, which no site can rebind.
        port: the port it is bound to.
        allowed: further names, each with a port or for every port.
    """

    def __init__(self, host: str, port: int, allowed: Iterable[str] = ()) -> None:
        self.port = port
        name = f"[{host}]" if ":" in host else host.lower()
        self.is_everywhere = host in ("0.0.0.0", "::")
        is_here = self.is_everywhere or name == "localhost" or _is_loopback(name)
        self.names = {name, *(LOOPBACK if is_here else ())}
        self.allowed = set()
        for name_or_authority in allowed:
            if not AUTHORITY.fullmatch(name_or_authority.lower()):
                raise ConfigError(
                    f"allow_hosts: {name_or_authority!r} is no host's name, for example allow_hosts=[demo.example.org]"
                )
            self.allowed.add(name_or_authority.lower())

    def allows(self, authority: str) -> bool:
        """True if a Host header, `name` or `name:port`, is allowed."""
        match = AUTHORITY.fullmatch(authority.lower())
        if match is None:
            return False
        name, port = match["name"], int(match["port"] or DEFAULT_PORTS["http"])
        if {name, authority.lower()} & self.allowed:
            return True
        return port == self.port and (name in self.names or (self.is_everywhere and _is_address(name)))


class Guard:
    """An ASGI middleware that passes on the requests of the application's own page, and refuses all others.

    Args:
        app: the application.
        hosts: the names under which it is served.
        paths: for each method a pattern of the paths that its page needs.
        upload: the path to which recordings are sent.
        folder: the folder that stores recordings.
        most_bytes: the largest size of a recording; `NUM_STORED` recordings of that size may be stored.
    """

    def __init__(
        self,
        app: App,
        hosts: Hosts,
        paths: Mapping[str, re.Pattern[str]],
        upload: str,
        folder: Path,
        most_bytes: int,
    ) -> None:
        self.app, self.hosts, self.paths, self.upload, self.folder = app, hosts, paths, upload, folder
        self.most_bytes = most_bytes
        self.num_arriving = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":  # the page uses no websockets
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _by_name(scope["headers"])
        refusal = (
            self._foreign(scope, headers)
            or self._unknown(scope)
            or self._too_large(scope, headers)
            or self._storage_full(scope)
        )
        if refusal is not None:
            await _refuse(refusal, send)
            return
        is_upload = scope["path"] == self.upload
        self.num_arriving += is_upload
        try:
            await self._pass_on(scope, receive, send)
        finally:
            self.num_arriving -= is_upload

    def _foreign(self, scope: Message, headers: Mapping[str, list[str]]) -> Refusal | None:
        """The refusal of a request under another name, or from the page of another site."""
        requested = headers.get("host", [])
        if len(requested) != 1 or not all(map(self.hosts.allows, requested + headers.get("x-forwarded-host", []))):
            authorities = ", ".join(requested + headers.get("x-forwarded-host", [])) or "none"
            return Refusal(
                403, f"this page is not served as {authorities!r}: start it with allow_hosts=[...] if it should be"
            )
        if any(not _is_same(origin, requested[0]) for origin in headers.get("origin", [])):
            return Refusal(403, "requests of other sites' pages are not answered")
        foreign = any(site not in ("same-origin", "none") for site in headers.get("sec-fetch-site", []))
        is_link = scope["method"] == "GET" and headers.get("sec-fetch-dest") == ["document"]
        if foreign and not (is_link and scope["path"] == "/"):
            return Refusal(403, "requests of other sites' pages are not answered")
        return None

    def _unknown(self, scope: Message) -> Refusal | None:
        """The refusal of a path that the page never requests."""
        pattern = self.paths.get(scope["method"])
        is_known = pattern is not None and pattern.fullmatch(scope["path"]) and ".." not in scope["path"].split("/")
        return None if is_known else Refusal(404, "there is nothing here")

    def _most_bytes(self, scope: Message) -> int:
        return SMALL_BYTES + (self.most_bytes if scope["path"] == self.upload else 0)

    def _too_large(self, scope: Message, headers: Mapping[str, list[str]]) -> Refusal | None:
        """The refusal of a request whose header declares more than the limit; its body is not read."""
        lengths = headers.get("content-length", [])
        if not all(length.isdecimal() for length in lengths):
            return Refusal(400, "the Content-Length is not a number")
        return self._large() if any(int(length) > self._most_bytes(scope) for length in lengths) else None

    def _large(self) -> Refusal:
        return Refusal(413, f"a recording may have {self.most_bytes / 1e6:g} MB: max_upload_mb=... allows more")

    def _storage_full(self, scope: Message) -> Refusal | None:
        """The refusal of a recording when those stored and arriving fill the storage."""
        if scope["path"] != self.upload:
            return None
        stored_bytes = sum(map(_size, self.folder.rglob("*")))
        if stored_bytes + (self.num_arriving + 1) * self.most_bytes > NUM_STORED * self.most_bytes:
            return Refusal(507, "too many recordings are stored: they are deleted after two hours, or by a restart")
        return None

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        """Call the application; a body larger than the limit ends as if the client had disconnected."""
        bytes_left, is_answered = self._most_bytes(scope), False

        async def bounded() -> Message:
            nonlocal bytes_left
            message = await receive() if bytes_left >= 0 else {"type": "http.disconnect"}
            bytes_left -= len(message.get("body", b""))
            return message if bytes_left >= 0 else {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal is_answered
            if bytes_left >= 0 or is_answered:
                is_answered = True
                await send(message)

        try:
            await self.app(scope, bounded, answer)
        except Exception:
            if bytes_left >= 0:
                raise
        if bytes_left < 0 and not is_answered:
            await _refuse(self._large(), send)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # deleted at this moment
        return 0


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """All values of each header by its lower-case name."""
    values_by_name: dict[str, list[str]] = {}
    for name, value in headers:
        values_by_name.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return values_by_name


def _is_same(origin: str, host: str) -> bool:
    """True if an Origin is the site that a Host header names; `null` never is."""
    scheme, _, authority = origin.lower().partition("://")
    if scheme not in DEFAULT_PORTS:
        return False
    default = f":{DEFAULT_PORTS[scheme]}"
    return authority.removesuffix(default) == host.lower().removesuffix(default)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return _is_address(name) and ipaddress.ip_address(name.strip("[]")).is_loopback


async def _refuse(refusal: Refusal, send: Send) -> None:
    """Answer with a line of text and close the connection, without reading the rest of the request."""
    body = f"las demo_app: {refusal.reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
