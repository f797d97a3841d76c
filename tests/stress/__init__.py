"""Stress tests: many real processes, random sizes and moments; every message is checked byte by byte.

The oracle of random traffic is `tools.chaos`: each byte of a message follows from its sender and its number, and a
subscriber that was there from the start must hold message ``received + lost - 1``, at any moment. So a torn, repeated,
reordered or miscounted message shows at once, and not only in the sum.

Two variables of the environment:

==================  =========================================================
``MSGQ_TEST_SEED``  the first seed, as a failed test prints it (1 by default)
``MSGQ_STRESS``     how much longer than usual each test runs (1 by default)
==================  =========================================================
"""
