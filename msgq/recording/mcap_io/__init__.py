"""MCAP files: read, also if truncated or damaged, and written."""
