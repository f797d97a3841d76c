"""The controllers of controller.py against a recorded drive: a bug is found in an order that no run on a desk took."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from examples.controller import READING, THROTTLE, careful_controller, careless_controller, throttle
from msgq.simulation import Exploration, Fault, Faults, Simulation, explore
from tests.support import ROOT

# Recorded on a road: cycle, planned and measured speed. In the second cycle the plan is to brake.
DRIVE = [(1, 14.0, 12.5), (2, 3.0, 12.9), (3, 3.0, 11.0)]
PERIOD_NS = 50_000_000
RECORDING = [
    (cycle * PERIOD_NS, endpoint, READING.pack(cycle, value))
    for cycle, planned, measured in DRIVE
    for endpoint, value in (("plan", planned), ("speed", measured))
]
EXPECTED = [THROTTLE.pack(cycle, throttle(planned, measured)) for cycle, planned, measured in DRIVE]


def drive(sim: Simulation, controller: Callable[[], None]) -> None:
    """Play the recording to a controller, which must do what each cycle asks for."""
    sim.add(controller)
    sim.play(RECORDING)
    sim.run()
    assert sim.sent_on("throttle") == EXPECTED


def all_orders(controller: Callable[[], None]) -> Exploration:
    return explore(lambda sim: drive(sim, controller))


def test_controllers_in_recorded_order_are_correct() -> None:
    for controller in (careless_controller, careful_controller):
        with Simulation(choices=[]) as sim:
            drive(sim, controller)


def test_simulation_finds_order_with_error_of_careless_controller() -> None:
    found = all_orders(careless_controller)
    assert isinstance(found.error, AssertionError), found
    with pytest.raises(AssertionError), Simulation(choices=found.choices) as sim:  # and again, to look into it
        drive(sim, careless_controller)


def test_careful_controller_is_correct_in_each_order() -> None:
    found = all_orders(careful_controller)
    found.check()
    assert found.orders == 3 ** len(DRIVE)  # in each cycle: the plan first, the speed first, or both at once


@pytest.mark.msgq_sim(seeds=50, faults=Faults(delay=0.5, delay_max=0.2))
def test_careful_controller_with_delays_is_correct(msgq_sim: Simulation) -> None:
    drive(msgq_sim, careful_controller)


@pytest.mark.msgq_sim(fault_schedule=[Fault("drop", "plan", message=2)])
def test_controller_without_plan_sends_nothing(msgq_sim: Simulation) -> None:
    msgq_sim.add(careful_controller)
    msgq_sim.play(RECORDING)
    msgq_sim.run()
    assert msgq_sim.sent_on("throttle") == [EXPECTED[0], EXPECTED[2]]


def test_controller_program_says_what_it_waits_for(prefix: str) -> None:
    command = [sys.executable, "-m", "examples.controller"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("waiting for messages on the topics plan and speed; ")
        process.kill()
