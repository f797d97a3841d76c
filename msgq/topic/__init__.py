"""Topics: one publisher, many subscribers, messages in a ring (protocol.md)."""
