"""Create, open, validate and map the two files of a topic."""

def unlink_topic(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove an endpoint's files. Processes that have them mapped keep what they have, apart from newcomers.

    Parameters
    ----------
    endpoint : the endpoint's name.
    in_prefix : the prefix it lives in; None: the one in force, "": none.

    Returns
    -------
    Whether there was anything to remove.

    Raises
    ------
    SegmentError : a file could not be removed.
    """
