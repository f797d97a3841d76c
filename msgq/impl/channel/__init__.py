"""Channels over shared memory: many publishers, many subscribers, views without copies."""

from msgq.impl.channel.channelfile import ChannelFile, open_channel_file
from msgq.impl.channel.publisher import Loan, Publisher
from msgq.impl.channel.subscriber import Sample, Subscriber

__all__ = ["ChannelFile", "Loan", "Publisher", "Sample", "Subscriber", "open_channel_file"]
