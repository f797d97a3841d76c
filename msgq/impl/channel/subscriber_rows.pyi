"""The rows of a subscriber, and the pools that it has mapped. Nothing here is called from Python."""
