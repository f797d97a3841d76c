"""FlatBuffers: schemas and messages."""
