"""Subscribers that are inherited through fork."""

from __future__ import annotations

import msgq
from tests.stress import roles
from tests.stress.process_group import ProcessGroup, ring
from tests.stress.traffic import Stream, largest_message_size
from tests.support import DEADLINE, LONGER

FAMILY = 28  # processes, when a subscriber forks eight times and every third child goes on forking


def test_each_forked_subscriber_receives_all_later_messages(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: a subscriber forks while messages arrive, its children fork too; all go on from the cursor of that moment.

    Why: parent and child share the mapping, but must not share cursor, entry or slot.

    Failure would mean: parent and child split the messages, a child starts elsewhere, or a fork of a fork confuses
    whose places are whose.
    """
    for round_seed in range(seed, seed + max(1, int(3 * LONGER))):
        with ring(endpoint, 1 << 20):
            stream = Stream(round_seed, largest_message_size(1 << 20) // 64)
            child = scene.start(roles.forked, endpoint, round_seed, 8, 300)
            with roles.publisher(endpoint) as socket:
                for number in range(299):  # all fit into the ring, so nothing may be lost
                    socket.send(stream.message(number))
                socket.wait_for_readers(DEADLINE, n=FAMILY)
                socket.wait_for_readers(DEADLINE)
                living = {info.participant.pid for info in msgq.stats.topic(endpoint).subscribers}
                assert len(living) == FAMILY, "each has an entry of its own"
                socket.send(stream.message(299))
                codes = child.result()
            assert codes == [0] * 9
