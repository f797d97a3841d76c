"""Publishers that close and start again, with subscribers in place."""

from __future__ import annotations

import pytest

from tests.stress import roles
from tests.stress.process_group import ProcessGroup, assert_complete, finish, ring
from tests.support import LONGER

#: Those that get every message when they keep up.
COMPLETE = ("plain", "many", "into", "poller")


def test_fast_readers_lose_no_message_during_publisher_restarts(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: a publisher that connects, sends a few messages and closes, hundreds of times, and sends only after
    `all_readers_updated` said that everybody has read everything; the ring is tiny.

    Why: a restart keeps subscribers in place, with their cursors, slots and counts.

    Failure would mean: what was sent around a restart is lost or repeated, or back-pressure across a restart lies (or
    never comes true).
    """
    with ring(endpoint, 4096):
        readers = scene.start_all([(roles.subscribe, endpoint, kind, 4096, seed) for kind in COMPLETE])
        source = scene.start(roles.restart, endpoint, 4096, seed, int(500 * LONGER), True, len(COMPLETE))
        published = source.result()
        reports = finish(readers)
        assert [report["lost"] for report in reports] == [0] * len(reports)
        assert_complete(reports, published)


@pytest.mark.parametrize("ring_bytes", [1024, 1 << 16])
@pytest.mark.nightly
def test_sequence_numbers_continue_over_publisher_restarts(
    scene: ProcessGroup, endpoint: str, seed: int, ring_bytes: int
) -> None:
    """What: the same without back-pressure, so that subscribers are lapped while the publisher changes.

    Why: each publisher finds the sequence by walking the ring, each lapped subscriber by the checkpoint; both happen
    at once here.

    Failure would mean: `lost` is wrong, or became unknown, although no publisher is a stock one.
    """
    with ring(endpoint, ring_bytes):
        readers = scene.start_all([(roles.subscribe, endpoint, kind, ring_bytes, seed) for kind in roles.KINDS])
        times = int(4000 * LONGER)
        source = scene.start(roles.restart, endpoint, ring_bytes, seed, times, False, 0)
        published = source.result()
        assert_complete(finish(readers), published)
