"""Directories of rosbag2: the file metadata.yaml lists the files and their order.

Readers ignore all other fields of metadata.yaml, because the files contain the schemas.
"""

from __future__ import annotations

import os
from typing import Any

from msgq.common.storage.url_path import RecordingPath
from msgq.errors import MissingLibraryError, RecordingError
from msgq.recording.mcap_io.byte_reader import open_bytes

BAG_METADATA_FILE = "metadata.yaml"
SQLITE_BAG_SUFFIX = ".db3"
_BAG_ROOT_KEY = "rosbag2_bagfile_information"
_METADATA_BYTES_MAX = 4 << 20  # maximum bytes of metadata.yaml: some thousand topics and files


def list_bag_files(directory: RecordingPath) -> list[RecordingPath] | None:
    """Return the files of a bag in order; None: the directory is not a bag.

    Raises:
        RecordingError: metadata.yaml is invalid or not readable, a file is missing, or the files are not MCAP.
        MissingLibraryError: metadata.yaml exists, and PyYAML is not installed.
    """
    path = directory / BAG_METADATA_FILE
    text = _read_bag_metadata(path)
    if _BAG_ROOT_KEY not in text:
        return None
    bag_metadata = _parse_bag_metadata(path, text)
    storage, names = bag_metadata.get("storage_identifier"), bag_metadata.get("relative_file_paths")
    if storage == "sqlite3":
        raise make_sqlite_error(directory)
    if storage != "mcap":
        raise RecordingError(f"bag metadata '{path}' have the storage {storage!r}; msgq reads only the storage 'mcap'")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise RecordingError(f"bag metadata '{path}' are invalid: relative_file_paths is missing")
    files = [directory / os.path.basename(name) for name in names]  # old ones begin with the directory's own name
    if missing := [file for file in files if not file.is_file()]:
        text = f"bag metadata '{path}' name the file {missing[0].name!r}, which does not exist"
        raise RecordingError(f"{text}; restore the file, or pass the existing files instead of the directory")
    return files


def make_sqlite_error(path: RecordingPath) -> RecordingError:
    """Return the error for a bag in SQLite format."""
    command = f"rosbags-convert --src {path} --dst {os.path.splitext(path.name)[0]}_mcap --dst-storage mcap"
    return RecordingError(f"'{path}' is a rosbag2 bag in SQLite, not MCAP; convert it (pip install rosbags): {command}")


def make_not_mcap_error(path: RecordingPath, begin: bytes) -> RecordingError:
    """Return the error for a file that is not MCAP. `begin`: first bytes of the file."""
    if begin.startswith(b"SQLite format 3"):
        return make_sqlite_error(path)
    if begin.startswith(b"#ROSBAG"):
        command = f"rosbags-convert --src {path} --dst {os.path.splitext(path.name)[0]}_mcap --dst-storage mcap"
        return RecordingError(f"'{path}' is a bag of ROS 1, not MCAP; convert it (pip install rosbags): {command}")
    return RecordingError(f"'{path}' is not an MCAP file: it does not begin with the magic bytes of MCAP")


def _read_bag_metadata(path: RecordingPath) -> str:
    """Return the text of metadata.yaml; "": the file does not exist."""
    if not path.exists():
        return ""
    with open_bytes(path) as source:
        data = source.pread(_METADATA_BYTES_MAX + 1, 0)
    if len(data) > _METADATA_BYTES_MAX:
        raise RecordingError(
            f"bag metadata '{path}' are larger than {_METADATA_BYTES_MAX} bytes; "
            "pass the files instead of the directory"
        )
    return data.decode(errors="replace")


def _parse_bag_metadata(path: RecordingPath, text: str) -> dict[str, Any]:
    try:
        import yaml
    except ModuleNotFoundError as missing:
        hint = "pip install 'msgq-bus[rosbag2]', or pass the files instead of the directory"
        raise MissingLibraryError(f"bag metadata '{path}' need PyYAML, which is not installed: {hint}") from missing
    try:
        whole = yaml.load(text, Loader=yaml.BaseLoader)  # the one in C overflows its stack where lists are deep enough
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise RecordingError(f"bag metadata '{path}' are invalid: {reason or type(error).__name__}") from None
    bag_metadata = whole.get(_BAG_ROOT_KEY) if isinstance(whole, dict) else None
    if not isinstance(bag_metadata, dict):
        raise RecordingError(f"bag metadata '{path}' are invalid: {_BAG_ROOT_KEY} is missing")
    return bag_metadata
