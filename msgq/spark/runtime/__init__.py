"""What Spark runs on: its sessions, the Java and the Python of this machine, and a cache in the user's home."""
