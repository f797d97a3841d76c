"""Messages of logs in the order of time."""
