"""Subscribers that are inherited through fork."""

from __future__ import annotations

from tests.stress import roles
from tests.stress.scene import Scene, ring
from tests.stress.traffic import LONGER, Stream, largest


def test_every_fork_gets_the_rest_of_the_stream(scene: Scene, endpoint: str, seed: int) -> None:
    """What: a subscriber forks while messages arrive, its children fork too; all go on from the cursor of that moment.

    Why: parent and child share the mapping, but must not share cursor, entry or slot.

    Failure would mean: parent and child split the messages, a child starts elsewhere, or a fork of a fork confuses
    whose places are whose.
    """
    for round_seed in range(seed, seed + max(1, int(3 * LONGER))):
        with ring(endpoint, 1 << 20):
            stream = Stream(round_seed, largest(1 << 20) // 64)
            child = scene.start(roles.forked, endpoint, round_seed, 8, 300)
            with roles.publisher(endpoint) as socket:
                for number in range(300):  # all fit into the ring, so nothing may be lost
                    socket.send(stream.message(number))
                codes = child.result()
            assert codes == [0] * 9
