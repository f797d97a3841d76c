"""Meters beside endpoints that need Python's help at each message."""

from __future__ import annotations

import os
import threading

import msgq
from msgq.common import settings, shm_paths
from msgq.impl.channel.pool_files import list_pools
from msgq.impl.meter import run_meters
from msgq.kinds.opening import open_meter
from tests.support import Child, say


def publish_without_pool_name(name: str) -> None:
    """Child: publish from a pool that has no name any more, until it is killed."""
    publisher = msgq.Channel(name, capacity=8192).publisher(slot_bytes=64)
    for _, uid in list_pools(settings.get_prefix()):
        os.unlink(shm_paths.pool_path(name, settings.get_prefix(), uid))
    say("ready")
    while True:
        publisher.send(b"x")


def test_meter_returns_in_time_during_flood_of_messages_without_pool(prefix: str) -> None:
    """Failure would mean: somebody who publishes without a pause has `msgq hz` run for ever."""
    with Child(publish_without_pool_name, "c") as child:
        assert child.hear() == "ready"
        meter = open_meter("channel/c")
        watching = threading.Thread(target=run_meters, args=([meter], 0.3), daemon=True)
        watching.start()
        watching.join(20)
        ended = not watching.is_alive()
        child.kill()
        watching.join()
        meter.close()
    assert ended
