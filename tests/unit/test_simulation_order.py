"""ChoiceSequence depends on the seed and the fault schedule, and on nothing else."""

from __future__ import annotations

import dataclasses
from functools import partial

import pytest

import msgq
from msgq.errors import InvalidValueError
from msgq.kinds.simulation import FAULT_KINDS
from msgq.simulation import Simulation
from msgq.simulation.choices import ChoiceSequence, SplitMixRandom
from tests.support import run_child
from tests.unit import simulation_scenario

SEED = 7
#: Digests of the scenarios with this seed: each machine, Python and version of this library sends the same bytes.
GOLDEN = {
    "topics": "933942813d09b277e20ec55393ff8e9b1a3aa327d4fa2544ef5a1aac3a30b5ee",
    "channels": "88c154998ac950a0b2abfd8532570e49ccb5568c180cdae015048eec911042d3",
    "queues": "fe81044210bc5407f18c24e516fbbef235cb58cbaaea62bfaf9ba899558a175f",
    "records": "c4eeda17b7e7ff8be21c4d7889165a931100728ce530f44601d04711e0ae3746",
    "frames": "23f4eea8758eea14e3ac4933788985b09f825df805d8565521310e73be6ac609",
    "mixed": "706a8ff205bf3588ce257e242a3e9255f1375357ce504902c344663fe60ef7d3",
}


@pytest.mark.parametrize("scenario", simulation_scenario.SCENARIOS)
def test_simulation_seed_gives_golden_bytes(scenario: str) -> None:
    assert simulation_scenario.digest(scenario, SEED) == GOLDEN[scenario]


@pytest.mark.seeds(1, 10, 100)
def test_simulation_beside_noise_and_with_other_hash_seed_gives_golden_bytes(seed: int) -> None:
    """`make nightly` has 100 runs with each Python."""
    assert run_child(simulation_scenario.noisy_digests, SEED, env={"PYTHONHASHSEED": str(seed)}) == GOLDEN


@pytest.mark.parametrize("fault", FAULT_KINDS)
def test_each_fault_changes_mixed_scenario(fault: str) -> None:
    others = dataclasses.replace(simulation_scenario.FAULTS, **{fault: 0.0})
    assert simulation_scenario.digest("mixed", SEED, others) != GOLDEN["mixed"]


def test_different_seeds_give_different_runs() -> None:
    assert len({simulation_scenario.digest("topics", seed) for seed in range(20)}) == 20


def test_random_generator_is_splitmix64() -> None:
    """The first numbers of the published reference implementation, from the seed 1234567."""
    random = SplitMixRandom(1234567)
    assert [random.next_uint64() for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_random_number_below_limit_takes_each_value() -> None:
    random = SplitMixRandom(1)
    assert {random.choose_number_below(5) for _ in range(500)} == set(range(5))


@pytest.mark.parametrize(("probability", "expected"), [(0, {False}), (1, {True}), (0.5, {False, True})])
def test_draw_with_probability_zero_or_one_is_constant(probability: float, expected: set[bool]) -> None:
    random = SplitMixRandom(1)
    assert {random.draw_with_probability(probability) for _ in range(200)} == expected


class TestOrder:
    def test_choice_sequence_returns_given_choices_then_zeros(self) -> None:
        order = ChoiceSequence(0, [2, 1])
        assert [order.choose_index(3) for _ in range(4)] == [2, 1, 0, 0]
        assert order.decisions == [(2, 3), (1, 3), (0, 3), (0, 3)]

    def test_choice_with_single_alternative_is_not_recorded(self) -> None:
        order = ChoiceSequence(0, [1])
        assert [order.choose_index(1), order.choose_index(2)] == [0, 1]
        assert order.decisions == [(1, 2)]

    @pytest.mark.parametrize("choice", [3, -1])
    def test_choice_sequence_refuses_impossible_choice(self, choice: int) -> None:
        with pytest.raises(InvalidValueError, match=rf"choices\[0\] is {choice},"):
            ChoiceSequence(0, [choice]).choose_index(3)


def list_arrivals(sim: Simulation, topics: str = "abc", each: int = 2) -> bytes:
    """Return in which order messages of several topics, sent at the same time, arrive at one function."""
    seen: list[bytes] = []
    for name in topics:
        sim.on(name, seen.append)
    sim.play([(0.0, name, b"%s%d" % (name.encode(), i)) for i in range(each) for name in topics])
    sim.run()
    return b" ".join(seen)


def test_messages_of_topics_interleave_in_order_of_each_topic() -> None:
    seen = set()
    for seed in range(300):
        with Simulation(seed) as sim:
            order = list_arrivals(sim)
        seen.add(order)
        for name in "abc":
            assert order.index(b"%s0" % name.encode()) < order.index(b"%s1" % name.encode())
    assert len(seen) > 60  # 60 of 90


def test_messages_without_choices_arrive_in_send_order() -> None:
    with Simulation(choices=[]) as sim:
        assert list_arrivals(sim) == b"a0 a1 b0 b1 c0 c1"


def test_recorded_choices_repeat_message_order() -> None:
    with Simulation(choices=[2, 1, 0, 1]) as sim:
        first = list_arrivals(sim)
    with Simulation(choices=[choice for choice, _ in sim.decisions]) as again:
        assert list_arrivals(again) == first
    assert repr(again) == repr(sim) == f"Simulation(choices={[choice for choice, _ in sim.decisions]})"


def test_subscribers_of_one_topic_receive_in_random_order() -> None:
    seen = set()
    for seed in range(50):
        order: list[str] = []
        with Simulation(seed) as sim:
            for name in "xyz":
                sim.on("a", partial(lambda order, name, _: order.append(name), order, name), name=name)
            pub = msgq.pub_sock("a")
            pub.send(b"")
            sim.run()
        seen.add("".join(order))
    assert len(seen) == 6
