"""A broadcast: all participants send on one channel, and receive the messages of the others.

python -m examples.chat
"""

from __future__ import annotations

import msgq
from examples.processes import finish, say, start

PEOPLE = ("Ann", "Ben", "Cleo")


def talk(name: str) -> None:
    """Send two messages, and receive the messages of the others. `history` delivers earlier messages."""
    with msgq.Node(name) as node:
        chat = node.join_broadcast("chat", history=64)
        for text in ("hello", "bye"):
            chat.publisher.send(f"{name}: {text}".encode())
        heard: set[str] = set()
        while len(heard) < 2 * (len(PEOPLE) - 1):
            message = chat.subscriber.receive(timeout=20)
            assert message is not None, f"{name} received no message within 20 s; heard {heard}"
            heard.add(message.decode())
        say(f"{name} heard {', '.join(sorted(heard))}")


def main() -> None:
    """Run all participants."""
    with msgq.Node("host") as node:
        node.join_broadcast("chat", create=True)
        try:
            finish(*(start(talk, name) for name in PEOPLE))
        finally:
            node.channels["chat:broadcast"].unlink()


if __name__ == "__main__":
    main()
