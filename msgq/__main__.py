"""`python -m msgq` is the command `msgq`."""

from msgq.cli import main

if __name__ == "__main__":
    main()
