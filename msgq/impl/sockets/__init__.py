"""Common code of the sockets of all backends."""
