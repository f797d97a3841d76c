"""A publisher's row and pool: how it comes, grows, and goes. Nothing here is called from Python."""
