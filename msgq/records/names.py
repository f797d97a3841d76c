"""Vectors and boards: names, and files in /dev/shm (`shm_paths.locate_records_files`)."""

from __future__ import annotations

from msgq.common import naming, shm_paths
from msgq.common.record_changes import CHANGE_HEAD_FIELDS
from msgq.kinds import Kind

KIND = Kind(
    name="records",
    package="msgq.records",
    validate_name=naming.validate_records_name,
    name_prefix=naming.RECORDS_NAME_PREFIX,
    plural_name="records",
    locate_files=shm_paths.locate_records_files,
    change_header=CHANGE_HEAD_FIELDS[:2],
)
