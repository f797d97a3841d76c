"""Participants of all kinds that are killed or stopped at each step; the others must not notice more than needed.

Each kind has a table of scenes, in which one driver (driver.c) calls the library, and a play with those who were there
before, and who come later: readers of the library, whose messages are counted.
"""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from msgq import stats
from msgq.errors import SegmentError
from tests.crash import channels, queues, records, topics
from tests.crash.harness import Place, Play, Scene, Step, play_all

Kinds = dict[str, tuple[type[Play], dict[str, Any]]]
KILLED: Kinds = {
    "publisher": (topics.TopicPlay, topics.PUBLISHERS | topics.TRACKED),
    "publisher after another": (topics.TopicPlayAfterClose, topics.PUBLISHERS),
    "overwriting publisher": (topics.OverwritePlay, topics.OVERWRITERS),
    "subscriber": (topics.TopicPlay, topics.SUBSCRIBERS),
    "channel": (channels.ChannelPlay, channels.PUBLISHERS | channels.TOO_MANY_DEATHS | channels.SUBSCRIBERS),
    "viewer": (channels.HeirPlay, channels.HEIRS),
    "queue": (queues.QueuePlay, queues.SENDERS | queues.RECEIVERS),
    "vector": (records.VectorPlay, records.SHARED),
    "exclusive vector": (records.ExclusivePlay, records.EXCLUSIVE | records.EXCLUSIVE_JOINS),
    "board": (records.BoardPlay, records.BOARD | records.BOARD_STOPPED),
}
STOPPED: Kinds = {
    "channel": (channels.ChannelPlay, channels.STOPPED),
    "queue": (queues.QueuePlay, queues.STOPPED),
    "vector": (records.VectorPlay, records.SHARED),
    "exclusive vector": (records.ExclusivePlay, records.EXCLUSIVE),
    "board": (records.BoardPlay, records.BOARD_STOPPED),
}


def scenes(kinds: Kinds) -> pytest.MarkDecorator:
    """Parametrize a test by the scenes of these kinds."""
    cases = [
        pytest.param(*of, scene, id=f"{kind}-{name}")
        for kind, (*of, table) in kinds.items()
        for name, scene in table.items()
    ]
    return pytest.mark.parametrize(("play", "scene"), cases)


@scenes(KILLED)
def test_process_killed_at_each_step_leaves_usable_endpoint(endpoint: str, play: type[Play], scene: Scene) -> None:
    """What: the victim dies at each of its points in turn. Others drain the endpoint, go on, and come and go.

    Why: a process may die anywhere, and nobody has a say in when.

    Failure would mean: a message was lost, torn, repeated or out of order because a process died; a count went wrong; a
    slot, a row, an element or a key stays with the dead, or a file stays in /dev/shm.
    """
    play_all(endpoint, play, scene, signal.SIGKILL)


@scenes(STOPPED)
def test_process_stopped_at_each_access_blocks_no_other_process(endpoint: str, play: type[Play], scene: Scene) -> None:
    """What: the victim stops at each access; others write, read, and come and go; then it goes on.

    Why: the scheduler may take the CPU from anybody, anywhere, for as long as it likes.

    Failure would mean: somebody waits for one that does not run; or what it does with what it saw before, to an
    endpoint that has gone on, loses or repeats a message, or breaks a count.
    """
    play_all(endpoint, play, scene, signal.SIGSTOP)


LOCKED = {
    channels.ChannelPlay: ("arm join:10:64", "mq_channel_publisher_register: stored &row->pool_uid"),
    queues.QueuePlay: ("arm join", "mq_participant_write: stored &participant->uid"),
    records.VectorPlay: ("arm join", "mq_participant_write: stored &participant->uid"),
}


@pytest.mark.parametrize("play", LOCKED)
def test_lock_of_stopped_process_makes_open_fail_after_5_seconds(endpoint: str, play: type[Play]) -> None:
    """Nobody knows how long it will be stopped, so they are told. Those who are there go on."""
    with play.make(endpoint, SimpleNamespace(slots=queues.SLOTS)) as place:
        others = play(place, Scene("arm"))
        others.prepare()
        others.victim = place.stopped(*LOCKED[play])
        with pytest.raises(SegmentError, match="locked by another process"):
            place.join()
        others.go_on(Step(1, "", locked=True))
        others.victim.go_on()
        others.victim.end()
        place.join()


UNLOCKABLE = {
    topics.Topic: "unlockable claim send:16:0",
    channels.ChannelPlace: "unlockable join:10:64 send:16:0",
    queues.QueuePlace: "unlockable join send:0 take:1",
    records.RecordPlace: "unlockable join hold:0",
}


@pytest.mark.parametrize("make", UNLOCKABLE)
def test_process_without_row_lock_is_alive_until_its_death(endpoint: str, make: type[Place]) -> None:
    """What: the file system has no locks of rows; then others ask the kernel for the process and its start time.

    Failure would mean: the slots and rows of the living are given to others.
    """
    with make(endpoint) as place:
        owner = place.waiting(UNLOCKABLE[make])
        assert owner.pid in living(place)
        owner.kill()
        assert owner.pid not in living(place)


def living(place: Place) -> set[int]:
    """Return the pids of living participants."""
    found: Any = getattr(stats, place.kind)(place.endpoint)
    if place.kind == "topic":
        return {found.publisher.pid} if found.publisher and found.publisher.alive else set()
    ends = getattr(found, {"channel": "publishers", "queue": "handles", "record": "writers"}[place.kind])
    return {end.participant.pid for end in ends if end.participant.alive}
