"""Blobs: names, and files in /dev/shm."""

from __future__ import annotations

from pathlib import Path

from msgq.common import naming, shm_paths
from msgq.kinds import Kind


def blob_files(prefix: str) -> tuple[str, str]:
    """Return the directory of a prefix's blobs, and the beginning of their file names."""
    return f"{shm_paths.SHARED_MEMORY}/msgqblob_{prefix}", ""


def blob_path(name: str, prefix: str) -> Path:
    """Return the path of a blob."""
    directory, start = blob_files(prefix)
    return Path(directory, start + name)


KIND = Kind(
    name="blob",
    package="msgq_blobs",
    validate_name=naming.validate_endpoint_name,
    name_prefix="blob/",
    plural_name="blobs",
    locate_files=blob_files,
    names_senders=False,
)
