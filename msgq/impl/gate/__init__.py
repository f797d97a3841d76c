"""Counted events that a controller steps programs by (docs/fake-events.md)."""
