"""What the sockets of all backends have in common."""
