"""Forwards topics and channels between this host and ZMQ, so that a bus reaches other hosts (docs/guides/bridge.md)."""

from msgq.bridge.bridge import Bridge
from msgq.kinds.bridge import FORWARDING_STATE, FlowStats

__all__ = ["FORWARDING_STATE", "Bridge", "FlowStats"]
