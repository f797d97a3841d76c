"""Faults of a bus: scheduled, or drawn at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of
from msgq.kinds.simulation import FAULT_KINDS, FaultKind
from msgq.simulation.choices import SplitMixRandom

#: drop: it never arrives, and the subscriber counts it as lost. delay: it arrives later, and what follows it on its
#: topic after it. duplicate: it arrives twice. reorder: all that can happen at its time on other topics comes before
#: it. lap: it and all that the subscriber has not read are overwritten. restart: the node that sent it ends after it,
#: without notice, and starts from the beginning; what it sent still arrives. Of a work queue's messages there are
#: delay and reorder, and restart of the node that takes it: what it has taken and not acknowledged comes back. Of a
#: write to a vector or board there are drop, delay and reorder (its writer was killed, or held up, in the middle), and
#: restart of the node that writes.
FaultName = FaultKind
FAULT_NAMES = FAULT_KINDS


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong with one message, for all its subscribers.

    Attributes
    ----------
    kind : "drop", "delay", "duplicate", "reorder", "lap" (a subscriber that conflates is never lapped), "restart" (of
        the node that sends it, which must be a generator or blocking code).
    endpoint : the topic, or "channel/", "queue/" or "records/" and a name.
    message : its number there, from 1 on.
    at : or the first one sent (for "restart" with a queue, taken) at this time or later, in seconds of virtual time.
        One of the two is needed.
    delay : seconds, for "delay".

    Raises
    ------
    InvalidValueError : an unknown kind, neither or both of `message` and `at`, a "delay" without a `delay`, or what
        cannot happen to a message of a queue, which is to be lost, or come twice; or to a write.
    """

    kind: FaultName
    endpoint: str
    message: int | None = None
    at: float | None = None
    delay: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in FAULT_NAMES:
            raise InvalidValueError(
                f"fault kind {self.kind!r} is unknown; use one of {', '.join(FAULT_NAMES)}", self.endpoint
            )
        simulated = kind_of(self.endpoint).simulation
        if self.kind not in simulated.fault_kinds:
            text = (
                f"fault kind {self.kind!r} does not apply to a {simulated.fault_unit}; "
                f"use one of {', '.join(simulated.fault_kinds)}"
            )
            raise InvalidValueError(text, self.endpoint)
        if (self.message is None) == (self.at is None):
            raise InvalidValueError(
                "fault needs either message= (number of a message, from 1) or at= (seconds), but not both",
                self.endpoint,
            )
        if (self.kind == "delay") != (self.delay > 0):
            raise InvalidValueError(
                f"delay={self.delay} s does not fit fault kind {self.kind!r}; "
                "a fault of kind 'delay', and only this kind, needs delay > 0",
                self.endpoint,
            )


@dataclass(frozen=True, slots=True)
class Faults:
    """How probable each kind of fault is, for each message and subscriber (of a restart: for each message).

    Attributes
    ----------
    drop, delay, duplicate, reorder, lap, restart : 0 to 1. What cannot be restarted (functions, a recording) is not.
        Messages of work queues are not dropped, duplicated or lapped, and writes not duplicated or lapped.
    delay_max : seconds; a delay takes more than 0 and up to so long, all equally probable.

    Raises
    ------
    InvalidValueError : a probability outside 0 to 1, or a `delay_max` that is not above 0.
    """

    drop: float = 0.0
    delay: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    lap: float = 0.0
    restart: float = 0.0
    delay_max: float = 0.01

    def __post_init__(self) -> None:
        for kind in FAULT_NAMES:
            if not 0 <= getattr(self, kind) <= 1:
                raise InvalidValueError(f"{kind}={getattr(self, kind)} is not a probability; use 0 to 1")
        if not self.delay_max > 0:
            raise InvalidValueError(f"delay_max={self.delay_max} s is too small; use more than 0 s")


class FaultInjector:
    """Decides which faults a message meets."""

    def __init__(self, faults: Faults, fault_schedule: Sequence[Fault], seed: int) -> None:
        # Apart from the order of events, so that a fault more or less does not shuffle everything else.
        self._random_numbers = SplitMixRandom(SplitMixRandom(seed).next_uint64() ^ 0x6661756C7473)
        self._fault_schedule = list(fault_schedule)
        self._fault_probabilities = [(kind, getattr(faults, kind)) for kind in FAULT_NAMES if getattr(faults, kind) > 0]
        self._delay_max_ns = round(faults.delay_max * NS_PER_S)

    def find_scheduled_faults(
        self, endpoint: str, number: int, now_ns: int, kinds: tuple[FaultName, ...] = FAULT_NAMES
    ) -> dict[FaultName, int]:
        """Return the scheduled faults of this message, and the delay of each in nanoseconds."""
        if not self._fault_schedule:
            return {}
        due = [
            fault
            for fault in self._fault_schedule
            if fault.endpoint == endpoint
            and fault.kind in kinds
            and (fault.message == number if fault.at is None else fault.at * NS_PER_S <= now_ns)
        ]
        self._fault_schedule = [fault for fault in self._fault_schedule if fault not in due]
        return {fault.kind: round(fault.delay * NS_PER_S) for fault in due}

    def choose_random_faults(self, *, restart: bool) -> dict[FaultName, int]:
        """Return the faults that chance adds, as `scripted`: a restart, or any of the others."""
        delays: dict[FaultName, int] = {}
        for kind, probability in self._fault_probabilities:
            if (kind == "restart") == restart and self._random_numbers.draw_with_probability(probability):
                delays[kind] = (
                    1 + self._random_numbers.choose_number_below(self._delay_max_ns) if kind == "delay" else 0
                )
        return delays
