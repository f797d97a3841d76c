"""Silver: decoded messages, with one table for each schema."""
