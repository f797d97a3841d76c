"""Files of recordings: their names, and the files of a directory."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.url_path import RecordingPath, UrlPath
from msgq.common.storage.urls import FILE_URL_PREFIX, is_store_url
from msgq.errors import RecordingError
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.mcap_io.rosbag2 import SQLITE_BAG_SUFFIX, list_bag_files, make_sqlite_error

MCAP_SUFFIX = ".mcap"
MCAP_SUFFIXES = (MCAP_SUFFIX, ".mcap.zstd", ".mcap.zst")  # readable files; rosbag2 compresses files as a whole
RECOVERED_LABEL, REINDEXED_LABEL = "recovered", "reindexed"  # labels in the names of files that were made from others
_FILE_NAME_BYTES_MAX = 200  # bytes of a file's name, to which others are added; it may have 255


def make_segment_path(directory: Path, index: int) -> Path:
    """Return the path of a segment. The names of segments sort by index."""
    return directory / f"{index:06d}{MCAP_SUFFIX}"


def make_natural_sort_key(path: RecordingPath) -> list[str | int]:
    """Return a sort key for file names. Numbers sort by value, so bag_2 precedes bag_10."""
    return [int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", path.name))]


def find_segment_files(path: RecordingPath) -> list[RecordingPath]:
    """Return the files of a recording in order, or `path` itself if it is not a directory.

    A file that `recover` or `reindex` made from another file of the directory is omitted, because it has the same
    messages.

    Raises:
        RecordingError: the directory is not readable, or it is a bag of rosbag2 with missing files or without MCAP
            files.
        StorageError: a store cannot be read.
        MissingLibraryError: the directory is a bag of rosbag2, and PyYAML is not installed.
    """
    if not path.is_dir():
        return [path]
    bag = list_bag_files(path)
    if bag is not None:
        return bag
    names = _list_names(path)
    files = [path / name for name in filter_recording_names(names)]
    files = [file for file in files if isinstance(file, UrlPath) or not file.is_dir()]
    if not files and any(name.endswith(SQLITE_BAG_SUFFIX) for name in names):
        raise make_sqlite_error(path)
    copies = {make_sibling_name(file, label) for file in files for label in (RECOVERED_LABEL, REINDEXED_LABEL)}
    return sorted((file for file in files if file.name not in copies), key=make_natural_sort_key)


def _list_names(directory: RecordingPath) -> list[str]:
    if isinstance(directory, UrlPath):
        return [path.name for path, info in directory.list_entries().items() if info.is_file]
    try:
        return sorted(os.listdir(directory))
    except OSError as error:
        raise_handler_error(error)
        raise RecordingError(f"directory '{directory}' cannot be read: {error.strerror}", errno=error.errno) from error


def list_recordings(
    texts: Iterable[str], problems: list[Problem], storage_options: Mapping[str, str] | None = None
) -> list[RecordingPath]:
    """Return the files that paths, URLs and patterns refer to, sorted. Directories include all subdirectories.

    `problems`: gets the paths without files.

    Raises:
        RecordingError: a path does not exist.
    """
    paths: dict[RecordingPath, None] = {}
    for text in texts:
        for path in match_paths(text, storage_options):
            inside = list_directory_recordings(path, problems) if path.is_dir() else [path]
            if not inside:
                problems.append(Problem(str(path), 0, f"the directory has no {MCAP_SUFFIX} file"))
            paths.update(dict.fromkeys(inside))
    return list(paths)


def match_paths(text: str, storage_options: Mapping[str, str] | None = None) -> list[RecordingPath]:
    """Return the existing files and directories of a path, a URL or a pattern. Directories are not listed.

    Raises:
        RecordingError: nothing exists.
        StorageError: a store cannot be read.
    """
    if is_store_url(text):
        path = UrlPath(text, storage_options)
        named: list[RecordingPath] = [path] if path.exists() else [*path.match_pattern()]
    else:
        local = text.removeprefix(FILE_URL_PREFIX)
        named = [Path(local)] if os.path.exists(local) else [*map(Path, glob.glob(local))]
    if not named:
        raise RecordingError(f"path {text!r} does not exist; use a file, a directory, or a pattern that matches files")
    return sorted(named, key=make_natural_sort_key)


def list_directory_recordings(
    directory: RecordingPath, problems: list[Problem], first: RecordingPath | None = None
) -> list[RecordingPath]:
    """Return the recordings in a directory and all its subdirectories, sorted.

    Args:
        problems: gets the unreadable directories.
        first: recording in the directory. Recordings before it are omitted, and directories before its directories are
            not visited. None: all recordings.
    """
    paths: list[RecordingPath] = []
    folders_of_first = _list_folders(directory, first) if first is not None else []
    for top, names in _walk_directories(directory, folders_of_first, problems):
        paths += [top / name for name in filter_recording_names(names)]
        bags = [top / name for name in names if name.endswith(SQLITE_BAG_SUFFIX)]
        problems += [Problem(str(path), 0, str(make_sqlite_error(path))) for path in bags]
    if first is not None:
        paths = [path for path in paths if _get_listing_order(path) >= _get_listing_order(first)]
    return sorted(paths, key=_get_listing_order)


def _list_folders(directory: RecordingPath, file: RecordingPath) -> list[str]:
    """Return the names of the folders between a directory and a file below it."""
    return str(file).removeprefix(f"{directory}/").split("/")[:-1]


def _get_listing_order(path: RecordingPath) -> tuple[list[str], list[str | int]]:
    return str(path.parent).split("/"), make_natural_sort_key(path)


def _walk_directories(
    directory: RecordingPath, first_folders: Sequence[str], problems: list[Problem]
) -> Iterator[tuple[RecordingPath, Collection[str]]]:
    """Yield each directory at or below a path, and the names in it, without directories before `first_folders`."""
    if isinstance(directory, UrlPath):
        yield from _walk_store(directory, first_folders)
        return

    def record_walk_error(error: OSError) -> None:
        text = f"directory '{error.filename}' cannot be read: {error.strerror}"
        problems.append(Problem(str(error.filename), 0, text, error.errno))

    for top, folders, names in os.walk(directory, onerror=record_walk_error):
        depth = len(Path(top).relative_to(directory).parts)
        if depth < len(first_folders) and Path(top) == directory.joinpath(*first_folders[:depth]):
            folders[:] = [name for name in folders if name >= first_folders[depth]]
        yield Path(top), names


def _walk_store(directory: UrlPath, first_folders: Sequence[str]) -> Iterator[tuple[UrlPath, Collection[str]]]:
    """Do the same in a store. Directories after the first ones are listed with few requests, whatever their depth."""
    names: dict[UrlPath, list[str]] = {}
    for path, info in directory.list_entries(recursive=not first_folders).items():
        if info.is_file:
            names.setdefault(path.parent, []).append(path.name)
        elif first_folders and path.name >= first_folders[0]:
            yield from _walk_store(path, first_folders[1:] if path.name == first_folders[0] else [])
    yield from names.items()


def filter_recording_names(names: Collection[str]) -> Iterator[str]:
    """Yield the names of recordings. Omits a compressed file if its decompressed file is in the same directory."""
    present = set(names)
    for name in names:
        if name.endswith(MCAP_SUFFIXES) and (name.endswith(MCAP_SUFFIX) or os.path.splitext(name)[0] not in present):
            yield name


def make_sibling_name(path: RecordingPath, label: str) -> str:
    """Return the name of a file made from another file. `label`: RECOVERED_LABEL or REINDEXED_LABEL."""
    suffix = MCAP_SUFFIX if path.suffix == MCAP_SUFFIX else ""
    return f"{path.name.removesuffix(suffix)}.{label}{suffix}"


def make_safe_file_name(endpoint: str) -> str:
    """Return a portable and unique name for an endpoint's file or directory.

    ASCII letters, digits, "-", "." and "_" stay, except "." and "_" at the start. Other bytes become "~" and two
    hexadecimal digits. "~" alone stands for the empty name. Names of more than 200 bytes are shortened, and end with a
    number that makes them unique.
    """
    name = "".join(
        chr(byte) if re.fullmatch(rb"[\w.-]", bytes((byte,)), re.ASCII) else f"~{byte:02x}"
        for byte in endpoint.encode()
    )
    if name[:1] in (".", "_"):  # hidden, for Spark
        name = f"~{ord(name[0]):02x}{name[1:]}"
    if len(name) > _FILE_NAME_BYTES_MAX:
        import hashlib  # few names are that long

        name = f"{name[: _FILE_NAME_BYTES_MAX - 17]}-{hashlib.sha256(endpoint.encode()).hexdigest()[:16]}"
    return name or "~"
