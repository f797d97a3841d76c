"""Exit codes of the command that several modules use."""

SIGINT_EXIT_CODE = 130  # as shells report a program that SIGINT ended
