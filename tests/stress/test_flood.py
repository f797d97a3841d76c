"""One publisher that never waits, and every kind of subscriber."""

from __future__ import annotations

import pytest

from tests.stress import roles
from tests.stress.process_group import ProcessGroup, assert_complete, finish, ring
from tests.support import LONGER

SECONDS = 0.8 * LONGER


@pytest.mark.parametrize(
    "ring_bytes", [4096, *(pytest.param(each, marks=pytest.mark.nightly) for each in (1024, 1 << 20))]
)
def test_subscribers_of_all_kinds_receive_fast_messages_in_order(
    scene: ProcessGroup, endpoint: str, seed: int, ring_bytes: int
) -> None:
    """What: random sizes up to a third of the ring, sent one by one, in place and in batches, to a subscriber of each
    kind at once.

    Why: subscribers copy while the publisher may overwrite. On a tiny ring they are lapped thousands of times a
    second, and most messages wrap or extend the grant.

    Failure would mean: a torn, repeated or reordered message was delivered as good; or `lost` is not exact, if the
    sums do not agree.
    """
    with ring(endpoint, ring_bytes):
        readers = scene.start_all([(roles.subscribe, endpoint, kind, ring_bytes, seed) for kind in roles.KINDS])
        source = scene.start(roles.flood, endpoint, ring_bytes, seed, SECONDS)
        source.say("go")
        published = source.result()
        assert_complete(finish(readers), published)


@pytest.mark.nightly
def test_ring_with_18_subscribers_and_15_slots_delivers_whole_messages(
    scene: ProcessGroup, endpoint: str, seed: int
) -> None:
    """What: 18 subscribers on a ring that has 15 slots.

    Why: those without a slot watch another word to learn who publishes, and must not push anybody out.

    Failure would mean: one without a slot is served worse, or evicted another one.
    """
    kinds = [kind for kind in roles.KINDS if kind != "passive"] * 3
    with ring(endpoint, 1 << 16):
        readers = scene.start_all([(roles.subscribe, endpoint, kind, 1 << 16, seed) for kind in kinds])
        source = scene.start(roles.flood, endpoint, 1 << 16, seed, SECONDS)
        source.say("go")
        published = source.result()
        assert_complete(finish(readers), published)


@pytest.mark.nightly
@pytest.mark.parametrize(("ring_bytes", "words"), [(1024, 1), (1 << 16, 13), (1 << 20, 2)])
def test_receive_array_of_fast_messages_returns_valid_batches(
    scene: ProcessGroup, endpoint: str, seed: int, ring_bytes: int, words: int
) -> None:
    """What: batches of rows to subscribers that take arrays, which are validated block by block, not message by
    message.

    Why: a block is copied before anything in it is known to be good.

    Failure would mean: rows of two laps were mixed in one array, or a thrown-away block was counted.
    """
    with ring(endpoint, ring_bytes):
        readers = scene.start_all([(roles.columns, endpoint, seed, words, passive) for passive in (False, False, True)])
        source = scene.start(roles.rows, endpoint, seed, SECONDS, words)
        source.say("go")
        published = source.result()
        assert_complete(finish(readers), published)


@pytest.mark.nightly
@pytest.mark.parametrize("ring_bytes", [4096, 1 << 20])
def test_subscribers_that_join_and_leave_do_not_disturb_others(
    scene: ProcessGroup, endpoint: str, seed: int, ring_bytes: int
) -> None:
    """What: four processes join and leave all the time, as fast as they can, during a flood; three others stay.

    Why: entries and slots change hands while the publisher looks at them, and a joiner must find its place in the
    count while the ring turns under it.

    Failure would mean: a joiner started in the middle of a message, or with a wrong count; or somebody who stays was
    disturbed by those who come and go.
    """
    with ring(endpoint, ring_bytes):
        stay = [(roles.subscribe, endpoint, kind, ring_bytes, seed, None) for kind in roles.KINDS[:3]]
        readers = scene.start_all(stay)
        guests = scene.start_all([(roles.come_and_go, endpoint, ring_bytes, seed)] * 4)
        source = scene.start(roles.flood, endpoint, ring_bytes, seed, SECONDS, 16)
        source.say("go")
        published = source.result()
        times = finish(guests)
        print(f"guests came {times} times")
        assert min(times) > 10
        assert_complete(finish(readers), published)
