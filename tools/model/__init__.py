"""Random-schedule models for `python -m tools.model`: topics (docs/internals/topic-protocol.md) with frames' leases,
eventcount among several publishers (eventcount.py), channels (channel.py), work queues (workqueue.py), and records
(cell.py).

What it does: it runs a protocol as generators on a weak memory (memory.py, machine.py), with a scheduler that
preempts, delays and kills threads as a seed says (scheduler.py), and compares what subscribers get with what really
happened (oracle.py). The ring's scenarios are in scenarios.py. mutations.py takes it apart, one piece at a time; each
mutation must be found, or the model could not be trusted when it finds nothing.

What it does not: it proves nothing (schedules are drawn, not enumerated), rings have 4 to 20 words, channels 2 or 4
entries, queues up to 6 places, vectors and boards up to 3 elements, and the C code may still differ from the protocol.
Not modelled are time, numbers that overflow, foreign bytes, conflation, the batches of receive_array, who gets which
slot, several threads of one handle of a queue, and loads that a CPU delays behind later stores.
"""
