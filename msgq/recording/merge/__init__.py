"""Copies of logs: filtered, merged, split."""
