"""Blobs: a kind of endpoints outside of msgq. A blob is a plain file of messages."""
