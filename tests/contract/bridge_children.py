"""What the bridge's tests run on their hosts: ``python -m tests.contract.bridge_children speak|listen TOPIC``."""

from __future__ import annotations

import faulthandler
import itertools
import os
import sys
import time

import msgq
from tests.fork_server import CHILD_LIFETIME
from tests.support import DEADLINE_MS, say

PERIOD_S = 0.002


def speak(topic: str) -> None:
    """Publish process id and number, for ever."""
    pub = msgq.pub_sock(topic)
    for number in itertools.count():
        pub.send(b"%d %d" % (os.getpid(), number))
        time.sleep(PERIOD_S)


def listen(topic: str) -> None:
    """Say what comes: [the speaker's process id, number]."""
    sub = msgq.sub_sock(topic, timeout=DEADLINE_MS)
    while (message := sub.receive()) is not None:
        say([int(word) for word in message.split()])


def main(role: str, topic: str) -> None:
    {"speak": speak, "listen": listen}[role](topic)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(CHILD_LIFETIME, exit=True)
    main(*sys.argv[1:])
