"""The instructions of a process that sleeps for its messages stay below limits, so that its path cannot grow unnoticed.

callgrind counts instructions outside of the kernel, which do not depend on the load of the machine.
"""

from __future__ import annotations

import functools
import shutil

import pytest

from tools.bench.instructions import count_instructions

POLL_LIMIT = 5_000  # instructions of: poll four topics, sleep, wake up, receive twice
UPDATE_LIMIT = 12_000  # instructions of: update a SubMaster of four topics, which sleeps and takes a message
QUEUE_LIMIT = 5_000  # instructions of: receive a message of a queue, which sleeps
# Instructions of receive(timeout=), divided by those of receive() with a set time-out. The difference of 300 is the
# cost of an argument with a name in CPython and Cython.
TIMEOUT_SHARE = 1.15

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.usefixtures("prefix"),  # begins all names, so that `token` finds leftovers
    pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind, which counts the instructions, is missing"),
]
count = functools.cache(count_instructions)


def test_poll_that_sleeps_stays_below_limit() -> None:
    assert count("poll") <= POLL_LIMIT


def test_master_update_that_sleeps_stays_below_limit() -> None:
    assert count("update") <= UPDATE_LIMIT


def test_queue_receive_that_sleeps_stays_below_limit() -> None:
    assert count("queue") <= QUEUE_LIMIT


def test_receive_with_timeout_argument_costs_as_much_as_set_timeout() -> None:
    assert count("receive_timeout") <= TIMEOUT_SHARE * count("receive")
