"""Silver: messages decoded, one table a schema."""
