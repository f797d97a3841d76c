"""Topics: one publisher, many subscribers, messages in a ring (docs/internals/topic-protocol.md)."""
