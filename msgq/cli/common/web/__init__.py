"""Web servers of verbs: access control, limits, and one line for many refusals."""
