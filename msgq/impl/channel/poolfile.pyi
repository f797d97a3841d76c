"""A publisher's pool: made by its owner, mapped by others. Nothing here is called from Python."""
