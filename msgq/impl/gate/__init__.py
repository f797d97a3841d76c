"""Counted events that a controller steps programs by (docs/guides/fake-events.md)."""
