"""Cap'n Proto: schemas and messages."""
