"""Two versions of a speed controller, which sends a throttle for the planned and the measured speed of each cycle.

Planner and speedometer are other programs, so their two messages of a cycle arrive in any order. `python -m
examples.controller` runs the second version, and waits for these programs.
"""

from __future__ import annotations

import struct

import msgq

READING = struct.Struct("<Id")  # cycle, metres per second
THROTTLE = struct.Struct("<Id")  # cycle, -1 (brake) to 1
GAIN = 0.1  # throttle per metre per second of difference


def throttle(planned: float, measured: float) -> float:
    """Return the throttle for a planned and a measured speed."""
    return max(-1.0, min(1.0, GAIN * (planned - measured)))


def careless_controller() -> None:
    """React to each measurement with the newest plan.

    If the plan of a cycle arrives after the measurement, the car follows the plan of the previous cycle. On the
    developer's desk, the plan always arrived first.
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
    """React when both messages of a cycle have arrived."""
    poller = msgq.Poller()
    plans = msgq.sub_sock("plan", poller)
    speeds = msgq.sub_sock("speed", poller)
    commands = msgq.pub_sock("throttle")
    readings: dict[object, dict[int, float]] = {plans: {}, speeds: {}}
    while True:
        for socket in poller.poll(-1):
            cycle, value = READING.unpack(socket.receive() or b"")
            readings[socket][cycle] = value
            if all(cycle in cycles for cycles in readings.values()):
                planned, measured = readings[plans].pop(cycle), readings[speeds].pop(cycle)
                commands.send(THROTTLE.pack(cycle, throttle(planned, measured)))


if __name__ == "__main__":
    print("waiting for messages on the topics plan and speed; Ctrl-C ends the controller", flush=True)
    careful_controller()
