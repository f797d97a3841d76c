"""The environment of this process."""

def environment(name: str) -> str | None:
    """Return the value of an environment variable, as `os.environ` does; None: the variable is not set.

    Only `msgq.common.settings` calls this function, because that module defines the names of the variables.
    """
