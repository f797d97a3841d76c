"""The environment of this process."""

def environment(name: str) -> str | None:
    """Return a variable of this process's environment as `os.environ` has it; None when it is not set.

    For `msgq.common.settings`, which alone knows the names.
    """
