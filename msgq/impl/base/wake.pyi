"""Sleep until a shared word changes. Nothing here is called from Python."""
