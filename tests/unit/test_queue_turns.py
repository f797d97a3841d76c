"""The turn of a call that waits in a work queue, as the file shows it."""

from __future__ import annotations

import time

from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, Child, say
from tests.unit.queuefile import TURNS, QueueFile

LONG_US = 1000 * 1000


def spin_in_receive(name: str) -> None:
    """Receive again and again; a look that finds something begins the next spin."""
    queue = MessageQueue(name, spin_us=LONG_US)
    say("ready")
    while True:
        queue.receive()


def test_spinning_receive_takes_ticket_before_sleep(endpoint: str) -> None:
    """It sees messages that others take, again and again. A spin announces nothing, so it must end for the turn."""
    with MessageQueue(endpoint) as queue, Child(spin_in_receive, endpoint) as child:
        assert child.hear() == "ready"
        file, end = QueueFile(endpoint), time.monotonic() + DEADLINE
        while not file.read(TURNS):
            queue.send(b"")
            queue.receive(0)
            assert time.monotonic() < end
        queue.unlink()
