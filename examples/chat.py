"""A broadcast: all talk in one channel, and everybody hears the others, but not itself.

python -m examples.chat
"""

from __future__ import annotations

import msgq
from examples.processes import finish, say, start

PEOPLE = ("Ann", "Ben", "Cleo")


def talk(name: str) -> None:
    """Say two things, and listen until the others have said theirs. Who comes late hears what was said before."""
    with msgq.Node(name) as node:
        chat = node.join_broadcast("chat", history=64)
        for text in ("hello", "bye"):
            chat.publisher.send(f"{name}: {text}".encode())
        heard: set[str] = set()
        while len(heard) < 2 * (len(PEOPLE) - 1):
            message = chat.subscriber.receive(timeout=20)
            assert message is not None, f"{name} waited in vain; heard {heard}"
            heard.add(message.decode())
        say(f"{name} heard {', '.join(sorted(heard))}")


def main() -> None:
    """Let them talk."""
    with msgq.Node("host") as node:
        node.join_broadcast("chat", create=True)
        try:
            finish(*(start(talk, name) for name in PEOPLE))
        finally:
            node.channels["chat:broadcast"].unlink()


if __name__ == "__main__":
    main()
