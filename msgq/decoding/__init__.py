"""What payloads say: values by the schema of their endpoint, and those values as JSON."""
