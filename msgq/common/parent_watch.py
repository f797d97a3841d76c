"""Notifies a child process of a command when it should end, through its standard input."""

import os
import sys
import threading
import time

_EXIT_TIMEOUT_S = 10.0


class ParentWatch(threading.Thread):
    """Waits for the parent's message or death, and then sets `stop`.

    If the process does not end soon, the thread ends it.

    Attributes:
        stop: set when the process should end.
        orphaned: True: the standard input was closed without a message. The parent is dead and cannot clean up.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.orphaned = False

    def run(self) -> None:
        """Wait for the parent, and make sure that the process ends."""
        self.orphaned = not os.read(sys.stdin.fileno(), 16)
        self.stop.set()
        time.sleep(_EXIT_TIMEOUT_S)
        os._exit(1)
