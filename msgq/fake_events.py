"""Event-gated receiving, as stock msgq has it for deterministic replay: docs/fake-events.md."""

from __future__ import annotations

from msgq.impl.gate import Event, SocketEventHandle, wait_for_one_event
from msgq.naming import delete_fake_prefix, get_fake_prefix, set_fake_prefix, toggle_fake_events

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
    return SocketEventHandle(endpoint, get_fake_prefix() if identifier is None else identifier, override, enable)
