"""Masters: a subscriber and a publisher of many topics. The subscriber checks the rates."""

from msgq.topic.masters.pubmaster import PubMaster
from msgq.topic.masters.submaster import SubMaster

__all__ = ["PubMaster", "SubMaster"]
