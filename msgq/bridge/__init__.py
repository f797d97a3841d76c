"""Carrying topics and channels between this host and ZMQ, so that a bus reaches other hosts (docs/bridge.md)."""

from msgq.bridge.bridge import Bridge
from msgq.bridge.link import CARRYING, Flow

__all__ = ["CARRYING", "Bridge", "Flow"]
