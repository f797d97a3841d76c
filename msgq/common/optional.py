"""Optional libraries, and the extras of this distribution that install them."""

from __future__ import annotations

from importlib.util import find_spec

from msgq.errors import MissingLibraryError

_EXTRA_OF_PACKAGE = {
    **dict.fromkeys(("mcap", "zstandard", "lz4"), "record"),
    "pyarrow": "arrow",
    **dict.fromkeys(("deltalake", "obstore"), "lake"),
    "plotly": "report",
    "duckdb": "duckdb",
    "pyspark": "spark",
    "prometheus_client": "prometheus",
    **dict.fromkeys(("click", "rich", "psutil"), "cli"),
}


def find_extra_of_package(missing: ImportError) -> str | None:
    """Return the extra that installs a missing package; None: no extra does."""
    return _EXTRA_OF_PACKAGE.get((missing.name or "").partition(".")[0])


def is_extra_installed(extra: str) -> bool:
    """Return True if the packages of an extra are installed, without importing them."""
    return all(find_spec(package) for package, needed in _EXTRA_OF_PACKAGE.items() if needed == extra)


def require_extra(package: str, extra: str, *libraries: str) -> None:
    """Check that libraries are installed, without importing them.

    Args:
        package: package of msgq that needs the libraries.
        extra: extra that installs all of them.

    Raises:
        MissingLibraryError: a library is not installed.
    """
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        raise missing_library(package, extra, *missing)


def missing_library(feature: str, extra: str, *libraries: str) -> MissingLibraryError:
    """Return the error for a feature whose libraries are not installed. `extra`: the extra that installs them."""
    is_not = "which is not" if len(libraries) == 1 else "which are not"
    text = f"{feature} needs {' and '.join(libraries)}, {is_not} installed; run: pip install 'msgq-bus[{extra}]'"
    error = MissingLibraryError(text)
    error.name = libraries[0]  # same attribute as in errors of the import system
    return error
