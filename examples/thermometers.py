"""Three thermometers publish in one channel. Two displays receive the same messages in the same order.

python -m examples.thermometers
"""

from __future__ import annotations

import hashlib
import struct

import msgq
from examples.processes import finish, say, start

ROOMS = ("kitchen", "cellar", "attic")
READING = struct.Struct("<Id")  # number, degrees
READINGS = 300  # readings of each thermometer; the channel keeps all
CAPACITY = 1024


def thermometer(room: str) -> None:
    """Publish readings; an empty message is the last."""
    with msgq.Node(room) as node:
        readings = node.advertise("temperature")
        for number in range(READINGS):
            readings.send(READING.pack(number, 20 + number / 100))
        readings.send(b"")


def display(name: str) -> None:
    """Receive all messages since the creation of the channel, and print a hash of their order."""
    with msgq.Node(name) as node:
        readings = node.subscribe("temperature", history=CAPACITY)
        order = hashlib.sha256()
        numbers = dict.fromkeys(ROOMS, 0)
        gone = 0
        while gone < len(ROOMS) and (message := readings.receive(timeout=20)) is not None:
            assert readings.last is not None
            room = readings.last.publisher.name
            order.update(room.encode())
            if not message:
                gone += 1
                continue
            number, _ = READING.unpack(message)
            assert number == numbers[room], "messages of one publisher keep their order"
            numbers[room] += 1
        say(f"{name}: {numbers}, {readings.lost} lost, order {order.hexdigest()[:8]}")


def main() -> None:
    """Run two thermometers and a display, then the third, and a display that missed the beginning."""
    with msgq.Channel("temperature", capacity=CAPACITY, create=True) as channel:
        try:
            early = [start(thermometer, room) for room in ROOMS[:2]] + [start(display, "hall")]
            finish(start(thermometer, ROOMS[2]))
            finish(*early, start(display, "study"))
        finally:
            channel.unlink()


if __name__ == "__main__":
    main()
