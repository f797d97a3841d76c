"""What processes of the stress tests and crash tests have in common."""

from __future__ import annotations

import select
import sys
from typing import Any

import msgq


def subscriber(endpoint: str, **options: Any) -> msgq.SubSocket:
    """Return a subscriber whose receive waits, but not past the end of a test."""
    socket = msgq.SubSocket()
    socket.connect(msgq.context, endpoint, **options)
    socket.setTimeout(20)
    return socket


publisher = msgq.pub_sock


def has_input() -> bool:
    """Whether the parent has said something that was not heard yet."""
    return bool(select.select([sys.stdin], [], [], 0)[0])
