"""From the bus into files."""
