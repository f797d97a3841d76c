"""Random-schedule models for `python -m tools.model`: topics (docs/internals/topic-protocol.md), eventcount among
several publishers (eventcount.py), and records (cell.py).

A new protocol is modelled here before its code exists. Channels, queues and the leases of frames have no model any
more: the tests of `tools.mutate.headers` find each missing step in their headers.

What it does: it runs a protocol as generators on a weak memory (memory.py, machine.py), with a scheduler that
preempts, delays and kills threads as a seed says (scheduler.py), and compares what subscribers get with what really
happened (oracle.py). The ring's scenarios are in scenarios.py. mutations.py takes it apart, one piece at a time; each
mutation must be found, or the model could not be trusted when it finds nothing.

What it does not: it proves nothing (schedules are drawn, not enumerated), rings have 4 to 20 words, vectors and
boards up to 3 elements, and the C code may still differ from the protocol. Not modelled are time, numbers that
overflow, foreign bytes, conflation, the batches of receive_array, who gets which slot, and loads that a CPU delays
behind later stores.
"""
