"""Runtime of Spark: sessions, Java and Python of this machine, and a cache in the user's home."""
