"""The fake backend: the ring's sockets on a bus inside the process, in virtual time.

The contracts are in the ring's stubs (core.pyi); what this backend does not promise is listed in
tests/contract/conftest.py. A subscriber that waits in vain lets virtual time pass; only in a simulation
(msgq.simulation) does anybody else run meanwhile. One thread at a time may use a bus.
"""

from msgq.impl.base.core import Context
from msgq.impl.fake.publisher import PubSocket
from msgq.impl.fake.subscriber import SubSocket
from msgq.impl.fake.waiting import Poller

__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]
