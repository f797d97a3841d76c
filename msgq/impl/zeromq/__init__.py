"""The zmq backend: the same sockets over ZeroMQ PUB/SUB, between hosts and with other ZeroMQ programs."""

from msgq.impl.base.core import Context
from msgq.impl.zeromq.addresses import subscriber_address
from msgq.impl.zeromq.poller import Poller
from msgq.impl.zeromq.publisher import PubSocket
from msgq.impl.zeromq.subscriber import SubSocket

__all__ = ["Context", "Poller", "PubSocket", "SubSocket", "subscriber_address"]
