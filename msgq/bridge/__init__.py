"""Bridge that forwards topics and channels between this host and other hosts by ZMQ (docs/guides/bridge.md)."""

from msgq.bridge.bridge import Bridge
from msgq.kinds.bridge import FORWARDING_STATE, FlowStats

__all__ = ["FORWARDING_STATE", "Bridge", "FlowStats"]
