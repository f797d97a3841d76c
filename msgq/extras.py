"""Libraries that are optional, and which extra of this distribution brings them."""

from __future__ import annotations

from importlib.util import find_spec

from msgq.errors import MissingLibraryError

_EXTRAS = {
    **dict.fromkeys(("mcap", "zstandard", "lz4"), "record"),
    "pyarrow": "arrow",
    "deltalake": "lake",
    "plotly": "report",
    "pyspark": "spark",
    **dict.fromkeys(("click", "rich", "psutil"), "cli"),
}


def extra_of(missing: ImportError) -> str | None:
    """Return the extra that brings what is missing; None: none does."""
    return _EXTRAS.get((missing.name or "").partition(".")[0])


def require(package: str, extra: str, *libraries: str) -> None:
    """Look whether libraries are installed, without importing them.

    Parameters
    ----------
    package : ours, which needs them.
    extra : that brings them all.

    Raises
    ------
    MissingLibraryError : one is not.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        names = " and ".join(missing)
        is_not = "which is not" if len(missing) == 1 else "which are not"
        raise MissingLibraryError(f"{package} needs {names}, {is_not} installed: pip install 'msgq-bus[{extra}]'")
