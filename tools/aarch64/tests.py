"""What runs under the emulator, and what does not, with the reason."""

from __future__ import annotations

#: The ring, its sockets and its protocol, in Python and C.
TESTS = (
    *(
        f"tests/unit/test_{name}.py"
        for name in (
            "segment",
            "ring_reader",
            "ring_slots",
            "ring_random",
            "wake",
            "liveness",
            "meter",
            "stats",
            "reentrant_use",
            "errors",
            "naming",
            "schema",
        )
    ),
    *(
        f"tests/contract/test_{name}.py"
        for name in (
            "pubsub",
            "conflate",
            "poller",
            "timeouts",
            "lifecycle",
            "buffers",
            "fork",
            "event_loop",
            "threads",
            "signals",
        )
    ),
    "tests/crash/test_creation_killed.py",
    "tests/crash/test_joins_killed.py",
    "tests/crash/test_steps.py::test_process_killed_at_each_step_leaves_usable_endpoint",
    "tests/sanitizers/test_threads.py",
    "tests/sanitizers/test_leases.py",
)
#: Other backends are not the matter here, and a stock process beside an emulated one cannot be judged (see below).
WORDS = "not zmq and not fake and not stock"

_SIGNALS = "QEMU catches every signal itself, so /proc says that a thread survives one that in truth kills it"
_MEMORY = "QEMU accepts and ignores MADV_POPULATE_WRITE, so each segment gets all of its memory at its creation"
#: Tests that are left out, and why.
LEFT_OUT = {
    "tests/unit/test_ring_slots.py::TestSlots::test_subscriber_uses_another_slot_after_overwrite_of_its_slot": _SIGNALS,
    "tests/unit/test_ring_slots.py::TestForStockSubscribers": _SIGNALS,
    "tests/unit/test_liveness.py::test_process_identity_equals_pid_and_start_time_of_kernel": (
        "QEMU writes /proc/self/stat itself, with another start time than the kernel tells other processes"
    ),
    "tests/unit/test_wake.py::test_sleeping_subscriber_without_messages_is_not_scheduled": (
        "it counts context switches, and QEMU's own are among them"
    ),
    "tests/unit/test_reentrant_use.py::test_topic_lock_is_held_on_file_that_replaced_removed_file": (
        "it looks for a thread by /proc/PID/task, which it may find ended under an emulator that is slow"
    ),
    "tests/unit/test_segment.py::TestNoSpace::test_new_ring_that_cannot_be_mapped_is_removed": (
        "QEMU does not bind the emulated program to a limit of its address space"
    ),
    "tests/unit/test_segment.py::TestSize::test_segment_memory_is_allocated_after_full_lap": _MEMORY,
    "tests/unit/test_segment.py::TestStrangeFiles::test_ring_with_holes_gets_first_and_last_page": _MEMORY,
    "tests/unit/test_segment.py::TestNoSpace::test_schema_on_full_file_system_raises": _MEMORY,
    "tests/unit/test_segment.py::TestNoSpace::test_send_on_full_file_system_raises": _MEMORY,
    "tests/unit/test_segment.py::TestNoSpace::test_message_too_large_for_free_memory_allocates_no_memory": _MEMORY,
    "tests/unit/test_segment.py::TestNoSpace::test_stage_continues_without_space_for_timing_topic": _MEMORY,
}
#: Whole folders, and why.
NOT_RUN = {
    "tests/unit (rest)": "command line, backends in Python and simulations: nothing in them depends on the machine",
    "tests/fuzz": "the sanitizers do not run under QEMU; the drivers run without them, before pytest",
    "tests/sanitizers (address, thread)": "the same",
    "tests/crash (stopped, random), tests/stress": "hundreds of emulated processes take longer than the watchdogs",
    "tests/contract (stock)": _SIGNALS,
    "tests/visionipc, tests/recording, tests/spark": "not of the ring; their C is run by the fuzzer's drivers",
}
