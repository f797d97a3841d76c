"""A lidar, and two programs that read its scans without a copy. One program keeps too many scans.

python -m examples.lidar
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

import msgq
from examples.processes import finish, say, start

if TYPE_CHECKING:
    from msgq.impl.channel import Sample, Subscriber

POINT = np.dtype([("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("intensity", "<f4")])
POINTS = 2_000  # points of a scan
SCANS = 200
PERIOD = 0.002  # seconds
CAPACITY = 64  # scans that stay for slower subscribers: 128 ms
VIEWS = 8  # views that each subscriber may hold
# One slot for each scan in the channel, each held view, the loan, and a scan that has just left the channel.
SLOTS = CAPACITY + 2 * VIEWS + 2


def lidar_driver() -> None:
    """Write scans directly into shared memory. The last message is empty."""
    with msgq.Node("lidar_driver") as node:
        ready = node.create_mailbox("ready", history=2)
        scans = node.advertise("lidar", capacity=CAPACITY, slots=SLOTS, slot_bytes=POINTS * POINT.itemsize)
        for _ in ("mapper", "hoarder"):
            ready.receive(timeout=20)
        for number in range(1, SCANS + 1):
            with scans.loan(POINTS * POINT.itemsize) as loan:
                measure(np.frombuffer(memoryview(loan), POINT), number)
            time.sleep(PERIOD)
        scans.send(b"")
        say(f"lidar_driver: {scans.sent} sent, {scans.refused} refused, {scans.evicted} evicted")


def measure(points: np.ndarray[Any, Any], number: int) -> None:
    """Write a scan: a wall at a distance of `number` centimetres. No array refers to the loan after the return."""
    angles = np.linspace(0, 2 * np.pi, len(points), dtype="f4")
    points["x"], points["y"] = np.cos(angles) * number / 100, np.sin(angles) * number / 100
    points["z"], points["intensity"] = 0, number


def distance(scan: Sample) -> float:
    """Return the distance of the nearest point, without a copy of the scan."""
    points = np.frombuffer(memoryview(scan), POINT)
    return float(np.hypot(points["x"], points["y"]).min())


def mapper() -> None:
    """Read each scan, and release its view."""
    with msgq.Node("mapper") as node:
        scans = join(node)
        nearest = 1e9
        while (scan := scans.receive_view(timeout=20)) is not None:
            with scan:
                if not len(scan):
                    break
                nearest = min(nearest, distance(scan))
        say(f"mapper: {scans.received} received, {scans.lost} lost, nearest {nearest:.2f} m")


def hoarder() -> None:
    """Keep a view of each scan until msgq refuses. Then receive copies, and check that the kept scans are unchanged."""
    with msgq.Node("hoarder") as node:
        scans = join(node)
        kept: list[Sample] = []
        try:
            while (scan := scans.receive_view(timeout=20)) is not None:
                kept.append(scan)
        except msgq.errors.TooManyViewsError as error:
            say(f"hoarder: {error}")
        shown = [distance(scan) for scan in kept]
        while scans.receive(timeout=20):  # drops messages up to the empty one
            pass
        unchanged = shown == [distance(scan) for scan in kept]
        for scan in kept:
            scan.release()
        say(f"hoarder: {scans.received} received, {scans.lost} lost, {len(kept)} kept, unchanged: {unchanged}")


def join(node: msgq.Node) -> Subscriber:
    """Subscribe, and notify the driver."""
    scans = node.subscribe("lidar", max_views=VIEWS)
    node.open_mailbox("lidar_driver", "ready").send(b"")
    return scans


def main() -> None:
    """Run the three programs, and remove their channels."""
    with msgq.Node("lidar_driver") as node:
        node.subscribe("lidar", create=True)  # an error if the channel exists
        node.create_mailbox("ready").close()
        try:
            finish(*(start(program) for program in (lidar_driver, mapper, hoarder)))
        finally:
            for channel in node.channels.values():
                channel.unlink()


if __name__ == "__main__":
    main()
