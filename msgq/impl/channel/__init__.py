"""Channels over shared memory: many publishers, many subscribers, views without copies."""

from msgq.impl.channel.hub import Hub, open_hub
from msgq.impl.channel.publisher import Loan, Publisher
from msgq.impl.channel.subscriber import Sample, Subscriber

__all__ = ["Hub", "Loan", "Publisher", "Sample", "Subscriber", "open_hub"]
