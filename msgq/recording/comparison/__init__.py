"""Comparison of logs, message by message."""
