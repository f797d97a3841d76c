"""What payloads say: definitions, messages of every encoding, and schemas that a user names."""
