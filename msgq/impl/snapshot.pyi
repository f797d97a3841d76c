"""Read a topic's files for msgq.stats."""

from msgq.stats import TopicStats

def read_topic(endpoint: str, in_prefix: str) -> TopicStats:
    """Return a snapshot; see `msgq.stats.topic`."""
