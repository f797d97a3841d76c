"""Table features of Delta that msgq refuses.

msgq reads the data files of a table itself. A feature can change the meaning of these files: with deletion vectors, for
example, a file has rows that the table does not have. Therefore msgq opens only tables with features that it knows.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from deltalake import DeltaTable

from msgq.errors import RecordingError

_READABLE_FEATURES = frozenset({"timestampNtz"})
_WRITABLE_FEATURES = _READABLE_FEATURES | {"appendOnly", "changeDataFeed", "invariants"}
_LISTED_FEATURES_VERSION = 7  # the version of writers from which on a table lists its features
_FEATURELESS_VERSION = 2  # the last version of writers that does not include checkConstraints
_MAPPING_PROPERTY = "delta.columnMapping.mode"  # mark of columnMapping in tables before version 3 of readers


def check_table_is_readable(delta: DeltaTable, path: str) -> None:
    """Check that files of a table mean what msgq takes them for.

    Raises:
        RecordingError: the table has a feature that msgq cannot read.
    """
    features = set(delta.protocol().reader_features or ())
    if delta.metadata().configuration.get(_MAPPING_PROPERTY, "none") != "none":
        features.add("columnMapping")
    _refuse_features(features - _READABLE_FEATURES, path, "read")


def check_table_is_writable(delta: DeltaTable, path: str) -> None:
    """Check that rows may be added without work that msgq does not do, such as the check of a constraint.

    Raises:
        RecordingError: the table has a feature that msgq cannot write.
    """
    protocol = delta.protocol()
    features = set(protocol.writer_features or ())
    if _FEATURELESS_VERSION < protocol.min_writer_version < _LISTED_FEATURES_VERSION:
        features.add("checkConstraints")
    _refuse_features(features - _WRITABLE_FEATURES, path, "written")


def _refuse_features(features: set[str], path: str, done: str) -> None:
    if features:
        names = ", ".join(sorted(features))
        raise RecordingError(
            f"table '{path}' cannot be {done}: it has Delta features that msgq does not support: {names}; copy its rows"
            " with delta-spark into a new table without these features, and put the new table in place of this table"
        )
