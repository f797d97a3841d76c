"""The fake backend: sockets on a bus inside the process, in virtual time.

The ring's stubs (core.pyi) document the methods. tests/contract/conftest.py lists the differences. A subscriber that
waits advances virtual time. Only in a simulation (msgq.simulation) do other nodes run during the wait. One thread at a
time may use a bus.
"""

from msgq.impl.base.core import Context
from msgq.impl.fake.topic import Poller, PubSocket, SubSocket

__all__ = ["Context", "Poller", "PubSocket", "SubSocket"]
