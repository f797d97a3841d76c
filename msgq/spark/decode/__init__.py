"""Payloads as Arrow values."""
