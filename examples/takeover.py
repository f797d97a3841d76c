"""A killed publisher is replaced. The subscriber continues, and accounts for each message.

python -m examples.takeover
"""

from __future__ import annotations

import struct

import msgq
from examples.processes import finish, say, start

NUMBER = struct.Struct("<Q")
ENOUGH = 10_000  # messages


def publisher(name: str) -> None:
    """Publish numbers, written in place, until the process is killed."""
    with msgq.Node(name) as node:
        numbers = node.advertise("numbers")
        number = 0
        while True:
            with numbers.loan(NUMBER.size) as loan:
                NUMBER.pack_into(loan, 0, number)
            number += 1


def subscriber() -> None:
    """Receive until the second publisher has published enough, and account for each position since the beginning."""
    with msgq.Node("subscriber") as node:
        numbers = node.subscribe("numbers")
        begin = numbers.position
        heard = dict.fromkeys(("first", "second"), 0)
        while heard["second"] < ENOUGH:
            message = numbers.receive(timeout=20)
            assert message is not None, f"no message within 20 s after {heard}"
            assert numbers.last is not None
            heard[numbers.last.publisher.name] += 1
            if heard == {"first": ENOUGH, "second": 0}:
                node.open_mailbox("supervisor", "enough").send(b"")
        unaccounted = numbers.position - begin - numbers.received - numbers.lost
        say(f"subscriber: received from both publishers; {unaccounted} messages unaccounted for")


def main() -> None:
    """Kill the first publisher after 10,000 messages, and start the second publisher."""
    with msgq.Node("supervisor") as node:
        node.subscribe("numbers", capacity=1024, create=True).close()
        enough = node.create_mailbox("enough", create=True)
        try:
            watching = start(subscriber)
            first = start(publisher, "first")
            enough.receive(timeout=20)
            first.kill()
            second = start(publisher, "second")
            finish(watching)
            second.kill()
        finally:
            for channel in node.channels.values():
                channel.unlink()


if __name__ == "__main__":
    main()
