"""Random traffic of all kinds, with one checker: processes start, leave, are killed, stopped and superseded at random.

``python -m tools.chaos --seconds 900`` is a soak test: it prints a table and ends with 0, or with 1, the errors and the
seed. `tests/stress/test_traffic.py` runs the traffic of each kind by itself.

A plan names the endpoints (lanes), the processes (crews) and what disturbs them. Each process is an incarnation with a
number. Its record of the history is in memory that outlives it: the messages that it made, and the messages whose
sending returned. A message names its incarnation and its index there. So a subscriber knows for each message whether it
was sent, is intact and in order, and for each gap how many messages are lost. `kinds` has one file for each kind, with
its checks.
"""
