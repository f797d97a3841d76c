"""Segments: create, open, check, map and lock files in shared memory. Nothing here is called from Python."""
