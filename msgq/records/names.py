"""Vectors and boards: names, and files in /dev/shm (`naming.records_files`)."""

from __future__ import annotations

from msgq.common import naming
from msgq.kinds import Kind

KIND = Kind(
    name="records",
    package="msgq.records",
    validate=naming.records_name,
    name_prefix=naming.RECORDS_NAME_PREFIX,
    plural="records",
    heading="recs",
    files=naming.records_files,
    keeps_values=True,
)
