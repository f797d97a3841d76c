"""Recording, reading and playing."""
