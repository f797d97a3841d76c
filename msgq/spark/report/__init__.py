"""The page about a lake."""
