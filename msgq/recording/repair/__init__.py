"""Checks MCAP files, and rewrites damaged ones."""
