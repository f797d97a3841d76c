"""Compiled part: leases of buffers, and the work for each frame."""
