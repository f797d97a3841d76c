"""Many topics at once: a subscriber that knows how often each should come, and a publisher."""

from msgq.topic.masters.pubmaster import PubMaster
from msgq.topic.masters.submaster import SubMaster

__all__ = ["PubMaster", "SubMaster"]
