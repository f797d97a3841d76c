"""The three backends, and the base that all kinds in shared memory use."""
