"""The three backends, and the shared-memory ground that all pieces stand on."""
