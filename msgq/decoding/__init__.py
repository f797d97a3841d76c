"""Decoding of payloads by the schema of their endpoint, and decoded values as JSON."""
