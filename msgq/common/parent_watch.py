"""How a child process of a verb learns that it is over: by its standard input."""

import os
import sys
import threading
import time

_EXIT_TIMEOUT_S = 10.0


class ParentWatch(threading.Thread):
    """Waits for the parent's word or its death; then sets `stop`, and ends the process if that takes too long.

    Attributes
    ----------
    stop : it is over.
    orphaned : standard input closed without a word: the parent is dead, and cannot sweep up.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.stop = threading.Event()
        self.orphaned = False

    def run(self) -> None:
        """Wait, then see to it that the process ends."""
        self.orphaned = not os.read(sys.stdin.fileno(), 16)
        self.stop.set()
        time.sleep(_EXIT_TIMEOUT_S)
        os._exit(1)
