"""A sixth kind of endpoints, for tests: blobs, plain files of messages, one folder and one call of `register`."""
