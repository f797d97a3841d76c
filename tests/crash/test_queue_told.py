"""Who wants to be told of a message that comes to an empty queue, when those die, or stop, who should tell."""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from msgq.impl.workqueue.core import QueueNotification
from tests.crash.harness import Scene, Step, play_all, state
from tests.crash.queues import QueuePlace, QueuePlay, QueueScene
from tests.support import asleep, wait_until


@dataclass(frozen=True)
class TellerScene(QueueScene):
    """`taken`: a message is there at first, which the victim takes, or a former one that died with it.

    `later`: messages that come when it sleeps, or is dead.
    """

    taken: bool = False
    later: int = 0


TELLERS = {
    "send": TellerScene("join ready arm send:200"),
    "nack": TellerScene("join take:1 ready arm nack", taken=True),
    "close with job": TellerScene("join take:1 ready arm leave", taken=True),
    "wait and take one of two messages": TellerScene("join ready arm wait:5000", later=2),
    "recover": TellerScene("join ready arm sweep", former="join take:1", taken=True),
    "join with recovery": TellerScene("ready arm join", former="join take:1", taken=True),
}


class TellerPlay(QueuePlay):
    """The victim dies or stops at a step; then somebody looks for the dead, or another one sends."""

    place: QueuePlace
    scene: TellerScene

    def prepare(self) -> None:
        self.notice = QueueNotification(self.place.other)
        self.place.send(*[0] * self.scene.taken)

    def begin(self) -> None:
        assert not self.ready(), "nothing to take"
        self.notice.consume()

    def ready(self) -> list[int]:
        return [word for word in self.place.file.slot_states() if word >> 63]

    def started(self, step: Step) -> None:
        if self.scene.later:
            wait_until(lambda: state(self.victim.pid) == "Z" or (self.place.file.bits() and asleep(self.victim.pid)))
            self.victim.process.send_signal(signal.SIGSTOP)  # so that all of them are there when it wakes
            self.place.send(*range(self.scene.later))
            self.victim.go_on()

    def go_on(self, step: Step) -> None:
        for number in range(1000, 1010):
            self.place.drain()
            self.notice.consume()
            self.place.send(number)
            assert self.notice.consume()

    def check(self, step: Step, lines: list[str]) -> None:
        if not self.stood:
            self.place.handle()  # it looks for the dead, and stays: who leaves tells in any case
            left = self.ready()
            assert left or step.at or not self.scene.later
            assert self.notice.consume() or not left, "a message is there, and nobody was told"
        self.notice.close()
        self.place.other.notify(None)  # the wish is the handle's
        self.place.drain()
        self.place.life_goes_on()


@pytest.mark.parametrize("scene", TELLERS.values(), ids=TELLERS)
def test_notifying_sender_killed_at_each_step_leaves_notification_to_recovery(endpoint: str, scene: Scene) -> None:
    """What: the victim dies at each step; then somebody looks for the dead.

    Why: a sender that finds a message in the queue leaves it to the one before it to tell, who may be dead by then.

    Failure would mean: a message is there, nobody is told, and all later senders think that somebody was.
    """
    play_all(endpoint, TellerPlay, scene, signal.SIGKILL)


@pytest.mark.parametrize("name", ["send", "nack", "close with job"])
def test_notifying_sender_stopped_at_each_step_delays_no_other_notification(endpoint: str, name: str) -> None:
    """What: the victim stops at each step; what it sent is received, and another one sends.

    Failure would mean: whoever is told by messages to an empty queue waits for one that does not run.
    """
    play_all(endpoint, TellerPlay, TELLERS[name], signal.SIGSTOP)


def test_new_owner_of_row_sends_pending_notification(slot: QueuePlace) -> None:
    """It tells, though it looks for nobody; afterwards nothing would show that there was something to tell."""
    notice = QueueNotification(slot.other)
    slot.kill("join arm send:200", "mq_queue_commit_*: stored &h->parts.slot_states*")
    assert not notice.consume()
    slot.kill_free_rows()
    slot.waiting("join")
    assert notice.consume()
    notice.close()
    slot.other.notify(None)
