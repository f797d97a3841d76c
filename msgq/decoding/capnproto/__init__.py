"""Messages of Cap'n Proto: their schemas, and what they say."""
