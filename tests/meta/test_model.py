"""The models of the protocols: clean as they are, unable to miss a missing piece, and on a memory that is neither too
weak nor too strong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tools.model.cell import RECORDS
from tools.model.machine import Machine
from tools.model.memory import ACQUIRE, RELEASE, SEQ_CST
from tools.model.ops import (
    AARCH64,
    CPUS,
    X86,
    fence,
    futex_wait,
    futex_wake,
    load,
    load_strong,
    load_x86,
    membarrier,
    rmw,
    rmw_x86,
    store,
)
from tools.model.oracle import PROPERTIES
from tools.model.protocols import BY_SCENARIO, MUTATIONS, PROTOCOLS
from tools.model.runner import run_schedule, search
from tools.model.scenarios import RING
from tools.model.scheduler import Schedule
from tools.model.task import Steps

QUICK_SCHEDULES = 200
CLEAN_SCHEDULES = [QUICK_SCHEDULES, pytest.param(1000, marks=pytest.mark.nightly)]
MUTATION_SCHEDULES = 20000  # most are found within a hundred, the rarest one after 5865
LITMUS_SCHEDULES = 600

Result = dict[str, Any]
Thread = Callable[[Result], Steps[None]]


SLEEPING = ["sleep", "sleep_restart", "sleep_stock", "signal_stock", "eventcount_x86"]
SLEEPING += ["cell_sleep", "cell_sleep_exclusive", "cell_board"]
# One of each protocol; the others are searched at night.
QUICK = {"commit-release", "many-clear-first", "cell-read-fence"}


@pytest.mark.parametrize("schedules", CLEAN_SCHEDULES)
@pytest.mark.parametrize("scenario", BY_SCENARIO)
def test_protocol_model_violates_no_property(scenario: str, schedules: int) -> None:
    """A failure proves docs/internals/topic-protocol.md wrong. `python -m tools.model --scenario` prints the trace."""
    finding = search(scenario, schedules)
    assert finding is None, f"seed {finding.seed}: {finding.text}"


@pytest.mark.parametrize("scenario", SLEEPING)
def test_model_with_load_reordering_misses_no_wakeup(scenario: str) -> None:
    """Failure would mean: a sequentially consistent load is taken for a fence, which on x86 it is not."""
    rules = BY_SCENARIO[scenario].rules
    if BY_SCENARIO[scenario] is RING:
        rules = replace(rules, stock_loads_strong=False)
    elif BY_SCENARIO[scenario] is RECORDS:
        rules = replace(rules, cpu=X86)
    finding = search(scenario, QUICK_SCHEDULES, rules=rules)
    assert finding is None, f"seed {finding.seed}: {finding.text}"


def test_model_detects_missing_fence_only_with_x86_load_rules() -> None:
    release = MUTATIONS["many-release"]
    assert search("eventcount_x86", MUTATION_SCHEDULES, rules=release.rules) is not None
    assert search("eventcount", 5 * QUICK_SCHEDULES, rules=release.rules) is None, "ldar stays behind stlr"


def test_model_detects_missing_fence_after_version_store_only_on_x86() -> None:
    release = MUTATIONS["cell-sleep-release"].rules
    assert search("cell_sleep", MUTATION_SCHEDULES, rules=release) is not None
    assert search("cell_sleep", 2 * QUICK_SCHEDULES, rules=replace(release, cpu=AARCH64)) is None


@pytest.mark.parametrize("cpu", CPUS)
def test_model_finds_no_error_with_fence_after_release_stores(cpu: tuple[str, str, str]) -> None:
    """An exchange for each element, or one fence for all: either is an edge to those who sleep."""
    rules = replace(RECORDS.rules, publish="release", publish_fence=SEQ_CST, cpu=cpu)
    assert search("cell_sleep", QUICK_SCHEDULES, rules=rules) is None
    assert search("cell", QUICK_SCHEDULES, rules=rules) is None


def test_mutation_and_scenario_names_are_unique_across_protocols() -> None:
    assert len(BY_SCENARIO) == sum(len(each.scenarios) for each in PROTOCOLS)
    assert len(MUTATIONS) == sum(len(each.mutations) for each in PROTOCOLS)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in MUTATIONS]
)
def test_model_detects_mutation(name: str) -> None:
    """Failure would mean: the model no longer notices that this piece of the protocol is missing."""
    mutation = MUTATIONS[name]
    assert mutation.rules != BY_SCENARIO[mutation.scenario].rules
    finding = search(mutation.scenario, MUTATION_SCHEDULES, rules=mutation.rules)
    assert finding is not None, mutation.omission
    assert finding.broken in PROPERTIES


def test_model_seed_replays_schedule_with_trace() -> None:
    mutation = MUTATIONS["grant-release"]
    finding = search(mutation.scenario, MUTATION_SCHEDULES, rules=mutation.rules)
    assert finding is not None
    replays = [run_schedule(finding.scenario, finding.seed, mutation.rules, traced=True) for _ in range(2)]
    assert replays[0] == replays[1]
    assert replays[0] is not None
    assert replays[0].text == finding.text
    assert any("store write_pointer" in line for line in replays[0].trace)


# ---- litmus tests: which outcomes the memory allows ----


def possible_outcomes(words: list[str], *threads: Thread) -> set[tuple[Any, ...]]:
    """What the threads may leave in their result, as tuples of its values in the order of its keys."""
    seen = set()
    for seed in range(LITMUS_SCHEDULES):
        rng, result = Random(seed), Result()
        schedule = Schedule(rng, Machine(dict.fromkeys(words, 0), rng, staleness=0.5), traced=False)
        for number, thread in enumerate(threads):
            schedule.spawn(str(number), thread(result)).is_writer = True
        schedule.run()
        seen.add(tuple(result[key] for key in sorted(result)))
    return seen


def thread_of_steps(*steps: Any) -> Thread:
    """A thread of operations, and of pairs of a key and the operation whose result it gets."""

    def thread(result: Result) -> Steps[None]:
        for step in steps:
            if len(step) > 1 and isinstance(step[1], tuple):
                result[step[0]] = yield step[1]
            else:
                yield step

    return thread


# name: (is the old x behind the new y ruled out?, the writer's operations, the reader's)
MESSAGE_PASSING = {
    "relaxed": (False, [store("x", 1), store("y", 1)], [("a", load("y")), ("b", load("x"))]),
    "release only": (False, [store("x", 1), store("y", 1, RELEASE)], [("a", load("y")), ("b", load("x"))]),
    "acquire only": (False, [store("x", 1), store("y", 1)], [("a", load("y", ACQUIRE)), ("b", load("x"))]),
    "edge": (True, [store("x", 1), store("y", 1, RELEASE)], [("a", load("y", ACQUIRE)), ("b", load("x"))]),
    "fences": (
        True,
        [store("x", 1), fence(RELEASE), store("y", 1)],
        [("a", load("y")), fence(ACQUIRE), ("b", load("x"))],
    ),
    "through a read-modify-write": (
        True,
        [store("x", 1), rmw("y", lambda value: value + 1)],
        [("a", load("y", ACQUIRE)), ("b", load("x"))],
    ),
}


@pytest.mark.parametrize("name", MESSAGE_PASSING)
def test_message_passing_needs_release_and_acquire(name: str) -> None:
    ordered, writer, reader = MESSAGE_PASSING[name]
    seen = possible_outcomes(["x", "y"], thread_of_steps(*writer), thread_of_steps(*reader))
    assert ((1, 0) in seen) is not ordered
    assert {(0, 0), (0, 1), (1, 1)} <= seen


# name: (is it ruled out that neither sees the other's store?, what one executes between store and load, the other)
STORE_BUFFERING = {
    "no fence": (False, [], []),
    "one fence": (False, [fence(SEQ_CST)], []),
    "two fences": (True, [fence(SEQ_CST)], [fence(SEQ_CST)]),
    "one membarrier": (True, [membarrier()], []),
}


@pytest.mark.parametrize("name", STORE_BUFFERING)
def test_store_buffering_needs_two_fences_or_one_membarrier(name: str) -> None:
    ordered, first, second = STORE_BUFFERING[name]
    one = thread_of_steps(store("x", 1), *first, ("a", load("y")))
    two = thread_of_steps(store("y", 1), *second, ("b", load("x")))
    assert ((0, 0) in possible_outcomes(["x", "y"], one, two)) is not ordered


# name: (is it ruled out that neither sees the other's store?, how one stores, how it loads behind that)
SEQ_CST_LOADS = {
    "release, ldar": (True, store("x", 1, RELEASE), load_strong("y")),
    "release, mov": (False, store("x", 1, RELEASE), load_x86("y")),
    "exchange, mov": (True, rmw_x86("x", lambda _: 1), load_x86("y")),
}


@pytest.mark.parametrize("name", SEQ_CST_LOADS)
def test_release_store_orders_later_seq_cst_load_only_on_aarch64(name: str) -> None:
    ordered, publish, look = SEQ_CST_LOADS[name]
    one = thread_of_steps(publish, ("a", look))
    two = thread_of_steps(store("y", 1), fence(SEQ_CST), ("b", load("x")))
    assert ((0, 0) in possible_outcomes(["x", "y"], one, two)) is not ordered


def test_loads_of_one_location_see_stores_in_order() -> None:
    seen = possible_outcomes(
        ["x"], thread_of_steps(store("x", 1), store("x", 2)), thread_of_steps(("a", load("x")), ("b", load("x")))
    )
    assert seen == {(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 2)}


def test_store_of_one_thread_may_precede_pending_store_of_another() -> None:
    def last(result: Result) -> Steps[None]:
        yield store("x", 2)
        result["a"] = yield load("x")

    assert (1,) in possible_outcomes(["x"], thread_of_steps(store("x", 1)), last)


def test_read_modify_write_operations_lose_no_update() -> None:
    def twice(key: str) -> Thread:
        return thread_of_steps((key, rmw("x", lambda value: value + 1)), (key, rmw("x", lambda value: value + 1)))

    assert all(max(seen) == 3 for seen in possible_outcomes(["x"], twice("a"), twice("b")))


def test_futex_wait_sees_new_word_or_is_woken() -> None:
    """Nobody is left asleep, or a result would be short; a fence is not promised to those that are woken."""
    sleeper = thread_of_steps(
        ("slept", futex_wait("x", lambda value: value == 0)), fence(SEQ_CST), ("woken", load("x"))
    )
    seen = possible_outcomes(["x"], sleeper, thread_of_steps(store("x", 1), futex_wake()))
    assert seen == {(False, 1), (True, 1)}
