"""Gold: figures about messages, made hour by hour."""
