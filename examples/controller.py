"""A speed controller, twice: it takes the planned speed and the measured one of each cycle, and sends a throttle.

Planner and speedometer are other programs, so their two messages of a cycle arrive in any order.
"""

from __future__ import annotations

import struct

import msgq

READING = struct.Struct("<Id")  # cycle, metres per second
THROTTLE = struct.Struct("<Id")  # cycle, -1 (brake) to 1
GAIN = 0.1  # throttle for each metre per second that is missing


def throttle(planned: float, measured: float) -> float:
    """Return what to do about the difference."""
    return max(-1.0, min(1.0, GAIN * (planned - measured)))


def careless_controller() -> None:
    """React to each measurement with the newest plan.

    That is the plan of this cycle if it came first, and on the developer's desk it always did. The other way round the
    car follows the plan of the cycle before.
    """
    poller = msgq.Poller()
    plans = msgq.sub_sock("plan", poller)
    msgq.sub_sock("speed", poller)
    commands = msgq.pub_sock("throttle")
    planned = 0.0
    while True:
        for socket in poller.poll(-1):
            cycle, value = READING.unpack(socket.receive() or b"")
            if socket is plans:
                planned = value
            else:
                commands.send(THROTTLE.pack(cycle, throttle(planned, value)))


def careful_controller() -> None:
    """React when both messages of a cycle are there."""
    poller = msgq.Poller()
    plans = msgq.sub_sock("plan", poller)
    speeds = msgq.sub_sock("speed", poller)
    commands = msgq.pub_sock("throttle")
    readings: dict[object, dict[int, float]] = {plans: {}, speeds: {}}
    while True:
        for socket in poller.poll(-1):
            cycle, value = READING.unpack(socket.receive() or b"")
            readings[socket][cycle] = value
            if all(cycle in known for known in readings.values()):
                planned, measured = readings[plans].pop(cycle), readings[speeds].pop(cycle)
                commands.send(THROTTLE.pack(cycle, throttle(planned, measured)))


if __name__ == "__main__":
    careful_controller()
