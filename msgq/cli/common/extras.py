"""Which extra of this distribution brings a package that is not installed."""

_EXTRAS = {
    **dict.fromkeys(("mcap", "zstandard", "lz4"), "record"),
    "pyarrow": "arrow",
    **dict.fromkeys(("pyspark", "plotly"), "spark"),
    **dict.fromkeys(("click", "rich", "psutil"), "cli"),
}


def extra_of(missing: ModuleNotFoundError) -> str | None:
    """Return the extra that brings what is missing; None: none does."""
    return _EXTRAS.get((missing.name or "").partition(".")[0])
