"""From logs onto the bus, or into programs in virtual time."""
