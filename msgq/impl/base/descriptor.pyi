"""The schema descriptor of a segment as a msgq.Schema. Nothing here is called from Python."""
