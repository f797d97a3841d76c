"""Type of an endpoint's messages, determined before Spark reads them."""

from __future__ import annotations

import pyarrow as pa

from msgq.decoding.column_decoder import ColumnDecoder
from msgq.decoding.payload_decoder import Undecoded
from msgq.lake.delta_types import convert_to_delta_type
from msgq.recording import LogReader
from msgq.recording.reader.arrow_batches import read_arrow_batches

_SAMPLE_MESSAGES_MAX = 1000


def infer_value_type(log: LogReader) -> pa.DataType | None:
    """Return the type of the messages in a log with one endpoint; None: no messages.

    The type follows from the schema, or from the first messages.
    """
    batch = next(read_arrow_batches(log.log_view, ["channel", "data"], _SAMPLE_MESSAGES_MAX), None)
    if batch is None:
        return None
    schema = log.channels[batch.column("channel")[-1].as_py()].schema
    decoder = ColumnDecoder(allowed=convert_to_delta_type)
    known_type = decoder.find_value_type(schema)
    if known_type is None:
        values = [decoder.decode_payload(schema, payload) for payload in batch.column("data").to_pylist()]
        known_type = decoder.build_schema_column(
            schema, [value for value in values if not isinstance(value, Undecoded)]
        ).type
    return pa.string() if pa.types.is_null(known_type) else known_type
