"""The exit code of a command that SIGINT ended."""

SIGINT_EXIT_CODE = 130  # code that shells report for a program that SIGINT ended
