"""URLs of stores. This module imports no library, so that a local path costs nothing."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from msgq.errors import InvalidValueError

#: Credentials and settings of a store by the names of environment variables; None: from the environment.
StorageOptions = Mapping[str, str] | None

FILE_URL_PREFIX = "file://"
SCHEMES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "hdfs", "file")
_RUST_SCHEMES = {"gcs": "gs"}
_SCHEME_PATTERN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def is_url(text: object) -> bool:
    """Return True if a text begins with a scheme, as s3:// does."""
    return isinstance(text, str) and _SCHEME_PATTERN.match(text) is not None


def is_store_url(text: object) -> bool:
    """Return True for a URL of a store, and False for a local path, also with file://."""
    found = _SCHEME_PATTERN.match(text) if isinstance(text, str) else None
    return found is not None and found[1].lower() != "file"


def get_scheme(url: str) -> str:
    """Return the scheme of a URL.

    Raises:
        InvalidValueError: the text is not a URL, or its scheme is not supported.
    """
    found = _SCHEME_PATTERN.match(url)
    scheme = found[1].lower() if found else ""
    if scheme not in SCHEMES:
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        raise InvalidValueError(f"scheme {scheme!r} of a URL is not supported; use one of {schemes}, or a path")
    return scheme


def translate_scheme(scheme: str) -> str:
    """Return the name of a scheme in delta-rs and obstore."""
    return _RUST_SCHEMES.get(scheme, scheme)


def select_storage_options(path: str, storage_options: StorageOptions) -> StorageOptions:
    """Return the storage options for the URL of a store; None for a local path."""
    return storage_options if is_store_url(path) else None


def make_absolute_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a file or directory, without `..` and a slash at the end. A URL stays unchanged."""
    text = os.fspath(path).removeprefix(FILE_URL_PREFIX)
    return text.rstrip("/") if is_url(text) else os.path.abspath(text)


def refuse_local_options(path: str, storage_options: StorageOptions) -> None:
    """Check that no storage options are given for a local path.

    Raises:
        InvalidValueError: there are some.
    """
    if storage_options:
        raise InvalidValueError(f"storage options are given for the local path '{path}'; give them with a URL only")
