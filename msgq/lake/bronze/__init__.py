"""Bronze: messages as recorded, each once."""
