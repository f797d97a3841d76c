"""Channels: many publishers, many subscribers, messages without copies (channels.md)."""

from msgq.channel.channel import Channel
from msgq.channel.node import Broadcast, Node

__all__ = ["Broadcast", "Channel", "Node"]
