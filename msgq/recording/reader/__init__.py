"""Logs: messages, decoded, copied and compared."""
