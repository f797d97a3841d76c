"""Messages of FlatBuffers: their schemas, and what they say."""
