"""Access control of `las demo_app`: only requests of its own page, under its own address, not too large.

Every site that a browser on this machine shows can send requests to 127.0.0.1, and can give 127.0.0.1 a name of its own
(DNS rebinding). Such requests tell on themselves: by Host, by Origin, and by the browser's Sec-Fetch headers
(https://www.w3.org/TR/fetch-metadata/). This is a middleware of ASGI, and knows nothing of what makes the page.
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
NUM_KEPT = 10
"""Recordings of the largest size that there is room for at a time."""


class Refusal(NamedTuple):
    """The answer to a refused request: an HTTP status, and a sentence that says why."""

    status: int
    reason: str


class Hosts:
    """The names under which the page may be asked for.

    Args:
        host: the address it is bound to; one that means every address takes any number, which no site can rebind.
        port: it is bound to.
        allowed: further names, with a port or for any.
    """

    def __init__(self, host: str, port: int, allowed: Iterable[str] = ()) -> None:
        self.port = port
        name = f"[{host}]" if ":" in host else host.lower()
        self.is_everywhere = host in ("0.0.0.0", "::")
        is_here = self.is_everywhere or name == "localhost" or _is_loopback(name)
        self.names = {name, *(LOOPBACK if is_here else ())}
        self.allowed = set()
        for each in allowed:
            if not AUTHORITY.fullmatch(each.lower()):
                raise ConfigError(
                    f"allow_hosts: {each!r} is no host's name, for example allow_hosts=[demo.example.org]"
                )
            self.allowed.add(each.lower())

    def allows(self, authority: str) -> bool:
        """True if a Host header, `name` or `name:port`, is one of them."""
        found = AUTHORITY.fullmatch(authority.lower())
        if found is None:
            return False
        name, port = found["name"], int(found["port"] or DEFAULT_PORTS["http"])
        if {name, authority.lower()} & self.allowed:
            return True
        return port == self.port and (name in self.names or (self.is_everywhere and _is_address(name)))


class Guard:
    """An ASGI application that passes on to another one what its own page asks for, and refuses everything else.

    Args:
        app: the other one.
        hosts: the names that are its own.
        paths: for each method a pattern of the paths that its page needs.
        upload: the path to which recordings are sent.
        folder: where recordings are kept.
        most_bytes: of a recording; there is room for NUM_KEPT such.
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
            self._stranger(scope, headers)
            or self._unknown(scope)
            or self._too_large(scope, headers)
            or self._no_room(scope)
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

    def _stranger(self, scope: Message, headers: Mapping[str, list[str]]) -> Refusal | None:
        """The refusal of a request under another name, or from the page of another site."""
        given = headers.get("host", [])
        if len(given) != 1 or not all(map(self.hosts.allows, given + headers.get("x-forwarded-host", []))):
            said = ", ".join(given + headers.get("x-forwarded-host", [])) or "none"
            return Refusal(403, f"this page is not served as {said!r}: start it with allow_hosts=[...] if it should be")
        if any(not _is_same(origin, given[0]) for origin in headers.get("origin", [])):
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
            return Refusal(400, "its Content-Length is no number")
        return self._large() if any(int(length) > self._most_bytes(scope) for length in lengths) else None

    def _large(self) -> Refusal:
        return Refusal(413, f"a recording may have {self.most_bytes / 1e6:g} MB: max_upload_mb=... allows more")

    def _no_room(self, scope: Message) -> Refusal | None:
        """The refusal of a recording for which there is no room beside those stored and arriving."""
        if scope["path"] != self.upload:
            return None
        kept = sum(map(_size, self.folder.rglob("*")))
        if kept + (self.num_arriving + 1) * self.most_bytes > NUM_KEPT * self.most_bytes:
            return Refusal(507, "too many recordings are kept: they are deleted after two hours, and by a new start")
        return None

    async def _pass_on(self, scope: Message, receive: Receive, send: Send) -> None:
        """To the application, which hears that the visitor is gone as soon as more comes than may."""
        left, is_answered = self._most_bytes(scope), False

        async def bounded() -> Message:
            nonlocal left
            message = await receive() if left >= 0 else {"type": "http.disconnect"}
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal is_answered
            if left >= 0 or is_answered:
                is_answered = True
                await send(message)

        try:
            await self.app(scope, bounded, answer)
        except Exception:
            if left >= 0:
                raise
        if left < 0 and not is_answered:
            await _refuse(self._large(), send)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except OSError:  # deleted at this moment
        return 0


def _by_name(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, list[str]]:
    """All values of each header, its name in small letters."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1").strip())
    return found


def _is_same(origin: str, host: str) -> bool:
    """True if an Origin is the page that a Host header names; `null` is nobody's."""
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
    """Answer with a line of text, and hang up: what the visitor still sends is not read."""
    body = f"las demo_app: {refusal.reason}\n".encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    headers += [(b"connection", b"close"), (b"x-content-type-options", b"nosniff")]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
