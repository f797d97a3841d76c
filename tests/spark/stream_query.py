"""A query of a stream without Spark: calls the reader, and keeps a checkpoint and a table, as Spark does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable

from msgq.lake.message_columns import MESSAGE_COLUMNS
from msgq.spark.source.file_stream import RecordingStreamReader
from msgq.spark.source.position_files import PositionFiles, StreamPosition
from msgq.spark.source.source_options import SourceOptions


def make_reader(recordings: Path, **options: str) -> RecordingStreamReader:
    return RecordingStreamReader(SourceOptions.parse_options({"path": str(recordings), **options}), MESSAGE_COLUMNS)


def read_times(reader: RecordingStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Return the sorted log_time of all messages between two offsets."""
    batches = [batch for piece in reader.partitions(start, end) for batch in reader.read(piece)]
    return sorted(time for batch in batches for time in batch.column("log_time").to_pylist())


class StreamQuery:
    """A query with a checkpoint. A new object is a restart: it repeats the last batch, if that has no commit.

    Spark's order in a batch: the reader plans, Spark stores the offset, the reader gets the commit of the batch before,
    tasks read, the table gets the rows under the number of the batch, Spark stores the commit.
    """

    def __init__(
        self,
        recordings: Path,
        checkpoint: Path,
        retained: int = 100,
        step: Callable[[], None] = lambda: None,
        **options: str,
    ) -> None:
        self.checkpoint, self._retained, self._step = checkpoint, retained, step
        for name in ("offsets", "commits", "table"):
            (checkpoint / name).mkdir(parents=True, exist_ok=True)
        (checkpoint / "metadata").write_text('{"id": "a"}')
        self.reader = make_reader(recordings, **{"checkpointLocation": str(checkpoint), **options})
        self.reader.initialOffset()

    def read_offset(self, number: int) -> dict[str, Any]:
        """Return a stored offset; -1: the beginning."""
        if number < 0:
            return self.reader.initialOffset()
        offset: dict[str, Any] = json.loads((self.checkpoint / "offsets" / str(number)).read_text().splitlines()[-1])
        return offset

    def read_positions(self, number: int) -> dict[str, StreamPosition]:
        """Return the positions of a stored offset by path of the recording."""
        return PositionFiles(str(self.checkpoint)).read_positions(self.read_offset(number))

    def get_last_number(self, name: str = "offsets") -> int:
        return max((int(path.name) for path in (self.checkpoint / name).iterdir() if path.name.isdecimal()), default=-1)

    def plan_batch(self) -> bool:
        """Store the offset of the next batch. Return False if there are no new messages."""
        number = self.get_last_number() + 1
        start = self.read_offset(number - 1)
        end = json.loads(json.dumps(self.reader.latestOffset(start, ReadAllAvailable())))
        if end == start:
            return False
        self._store("offsets", number, "v1\n{}\n" + json.dumps(end))
        return True

    def run_batch(self) -> bool:
        """Repeat the batch without a commit, or run the next. Return False if there is none."""
        number = self.get_last_number()
        if number == self.get_last_number("commits"):
            if not self.plan_batch():
                return False
            number += 1
        if number > 0:
            self.reader.commit(self.read_offset(number - 1))
        times = read_times(self.reader, self.read_offset(number - 1), self.read_offset(number))
        self._store("table", number, json.dumps(times))
        self._store("commits", number, "v1\n{}")
        for name in ("offsets", "commits"):
            (self.checkpoint / name / str(number - self._retained)).unlink(missing_ok=True)
        return True

    def _store(self, name: str, number: int, text: str) -> None:
        self._step()
        path = self.checkpoint / name / f".{number}.tmp"
        path.write_text(text)
        self._step()
        path.rename(self.checkpoint / name / str(number))

    def list_position_files(self) -> list[str]:
        return sorted(path.name for path in self.checkpoint.glob("recording_positions/*"))

    def read_table(self) -> list[int]:
        """Return the sorted log_time of all messages in the table."""
        return sorted(
            time for path in (self.checkpoint / "table").glob("[0-9]*") for time in json.loads(path.read_text())
        )
