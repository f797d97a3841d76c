"""Distance of checkpoints in the log of a Delta table, and retention of old entries and checkpoints.

A checkpoint has all files of the table, so checkpoints after a fixed number of commits would need disk space that grows
with the square of the commits.
"""

from __future__ import annotations

from contextlib import suppress

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from deltalake.transaction import PostCommitHookProperties

#: A failure of delta-rs after a commit looks like a failed commit. Therefore msgq writes checkpoints itself.
NO_POST_COMMIT_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
NEW_TABLE_RETAIN_HOURS = 168
#: Number of versions between two checkpoints. In long logs: a tenth of the log, up to the maximum.
_VERSIONS_PER_CHECKPOINT, _VERSIONS_PER_CHECKPOINT_MAX = 100, 1000


def get_checkpoint_interval(version: int) -> int:
    """Return the number of versions between two checkpoints, in a log of this length."""
    return min(_VERSIONS_PER_CHECKPOINT * max(1, version // 1000), _VERSIONS_PER_CHECKPOINT_MAX)


def make_retention_property(retain_hours: int) -> dict[str, str]:
    """Return the table property that lets a cleanup keep the log entries of some hours."""
    return {"delta.logRetentionDuration": f"interval {retain_hours} hours"}


def set_log_retention(delta: DeltaTable, retain_hours: int) -> None:
    """Set the property if it has another value. If another process commits at the same time, the value may stay.

    Tables with a list of features keep their value, because delta-rs would change the list: it adds variantType.
    """
    retention = make_retention_property(retain_hours)
    has_feature_list = delta.protocol().writer_features is not None
    if not has_feature_list and not retention.items() <= delta.metadata().configuration.items():
        with suppress(DeltaError):
            delta.alter.set_table_properties(retention, post_commithook_properties=NO_POST_COMMIT_HOOKS)
