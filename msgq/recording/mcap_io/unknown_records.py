"""Records that MCAP does not define. A copy keeps those of other programs, and creates those of msgq again."""

from __future__ import annotations

from mcap.opcode import Opcode

from msgq.recording.mcap_io.origins import is_origins_record
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT

SKIPPED_BYTES_OPCODE = 0xFF  # an opcode that is free for applications: readers pass over the record
SKIPPED_BYTES_MAGIC = b"msgqgone"  # the damaged bytes follow


def is_foreign_record(head: bytes) -> bool:
    """Return True if neither MCAP nor msgq defines a record. `head`: its first 17 bytes, or the whole record."""
    body = head[RECORD_HEAD_STRUCT.size :]
    is_ours = is_origins_record(head) or (head[0] == SKIPPED_BYTES_OPCODE and body.startswith(SKIPPED_BYTES_MAGIC))
    return head[0] > Opcode.DATA_END and not is_ours
