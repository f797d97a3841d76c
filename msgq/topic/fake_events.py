"""Event-gated receiving, as stock msgq has it for deterministic replay: docs/guides/fake-events.md."""

from __future__ import annotations

from msgq.common.settings import delete_fake_prefix, read_fake_prefix, set_fake_prefix, toggle_fake_events
from msgq.impl.gate.core import Event, SocketEventHandle, wait_for_one_event

__all__ = [
    "Event",
    "SocketEventHandle",
    "delete_fake_prefix",
    "fake_event_handle",
    "get_fake_prefix",
    "set_fake_prefix",
    "toggle_fake_events",
    "wait_for_one_event",
]


def get_fake_prefix() -> bytes:
    """Return the identifier of the gates of this process and its child processes to come; b"" for none.

    Bytes, as stock does; `set_fake_prefix` and `fake_event_handle` take them.

    Raises
    ------
    EndpointNameError : the environment variable CEREAL_FAKE_PREFIX holds what cannot be part of a file's name.
    """
    return read_fake_prefix().encode()


def fake_event_handle(
    endpoint: str | bytes, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """Return a handle of an endpoint's gate.

    Parameters
    ----------
    endpoint : the topic's name.
    identifier : of the gate; None: the fake prefix in force, "": none.
    override : make the gate, in place of any other, and own it. Otherwise take the one that is there, if any.
    enable : whether receiving stops at the new gate; without `override` it stays as it is.

    Raises
    ------
    IpcError : as `SocketEventHandle`.
    """
    return SocketEventHandle(endpoint, read_fake_prefix() if identifier is None else identifier, override, enable)
