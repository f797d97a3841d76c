"""Event-gated receiving for deterministic replay, compatible with stock msgq (docs/guides/fake-events.md)."""

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
    """Return the identifier of the gates of this process and its future child processes; b"" for none.

    The result is bytes, as in stock msgq. `set_fake_prefix` and `fake_event_handle` accept bytes, too.

    Raises:
        EndpointNameError: CEREAL_FAKE_PREFIX contains characters that a file name cannot have.
    """
    return read_fake_prefix().encode()


def fake_event_handle(
    endpoint: str | bytes, identifier: str | bytes | None = None, override: bool = True, enable: bool = False
) -> SocketEventHandle:
    """Return a handle for the gate of an endpoint.

    Args:
        endpoint: name of the topic.
        identifier: identifier of the gate; None: the current fake prefix, "": no identifier.
        override: True: create the gate and own it. This gate replaces any other. False: open an existing gate, if any.
        enable: True: receiving stops at the new gate. Ignored without `override`.

    Raises:
        IpcError: see `SocketEventHandle`.
    """
    return SocketEventHandle(endpoint, read_fake_prefix() if identifier is None else identifier, override, enable)
