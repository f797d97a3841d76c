"""Checks of requests before any answer: token, host name and origin."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from aiohttp import web

#: Origin of the desktop applications of Foxglove and Lichtblick.
DESKTOP_ORIGIN = "file://"


def is_loopback_address(address: str) -> bool:
    """Return True if only processes of this machine can connect to an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Conditions for requests that the server answers.

    - If a token is set, all paths require the token.
    - The host name must be an IP address, a name of this machine, or a given name. A foreign name shows that a web
      page changed the address of its own name to this machine (DNS rebinding).
    - An origin must be this server, a desktop application, or a given origin. Only browsers send an origin. A foreign
      origin is a web page that the user visits.

    Attributes:
        token: required token; None: no token.
        host_names: accepted host names in addition.
        origins: accepted origins in addition, such as "https://app.foxglove.dev".
    """

    token: str | None = None
    host_names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()
    _own_names: frozenset[str] = field(default_factory=lambda: _list_own_names())

    def find_refusal(self, request: web.BaseRequest) -> web.HTTPException | None:
        """Return the answer to a refused request; None: the request is accepted. The reason names the condition."""
        host = request.headers.get("Host", "")
        if not self._is_known_host(host):
            text = f"host name {host!r} is not accepted; start the server with --allow-host\n"
            return web.HTTPForbidden(text=text, reason="Foreign Host Name")
        origin = request.headers.get("Origin")
        if origin is not None and not self._is_known_origin(origin, host):
            text = f"origin {origin!r} is not accepted; start the server with --allow-origin\n"
            return web.HTTPForbidden(text=text, reason="Foreign Origin")
        if self.token is not None and not self._has_token(request):
            text = "token is missing or wrong; open the address that `msgq serve` printed\n"
            return web.HTTPUnauthorized(text=text, headers={"WWW-Authenticate": "Bearer"})
        return None

    def _has_token(self, request: web.BaseRequest) -> bool:
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        presented = bearer if scheme.lower() == "bearer" else request.query.get("token", "")
        return hmac.compare_digest(presented.encode(errors="replace"), (self.token or "").encode())

    def _is_known_host(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        return is_ip_address(name) or name in self._own_names or name in self.host_names

    def _is_known_origin(self, origin: str, host: str) -> bool:
        return origin in (f"http://{host}", f"https://{host}", DESKTOP_ORIGIN) or origin in self.origins


def is_ip_address(name: str) -> bool:
    """Return True for an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _list_own_names() -> frozenset[str]:
    name = socket.gethostname().lower()
    return frozenset(("localhost", name, f"{name.partition('.')[0]}.local"))
