"""The tables of the benchmark: their rows, and the systems that take part."""

from collections.abc import Iterable
from dataclasses import dataclass

from tools.bench.adapters import FLOOR, ON_REQUEST, OTHER, OURS
from tools.bench.bus_cases import BUS_CASES, FRAME_BUS
from tools.bench.cases import CASES, FRAME_CASES, Case
from tools.bench.channel_cases import CHANNEL_CASES
from tools.bench.file_cases import COLUMN_CASES, DECODING_CASES, RECORDING_CASES
from tools.bench.kind_cases import KIND_CASES
from tools.bench.pipeline_cases import PIPELINE_CASES
from tools.bench.queue_cases import QUEUE_CASES
from tools.bench.record_cases import RECORD_CASES


@dataclass(frozen=True)
class Table:
    """Rows with the same systems.

    Attributes:
        cases: the rows.
        adapters: the name of the adapter of each system, in the order of the columns.
        on_request: True: measured only if --only names the table or its rows.
    """

    cases: tuple[Case, ...]
    adapters: dict[str, str]
    on_request: bool = False


def _libraries(*names: str) -> dict[str, str]:
    return {OURS: OURS, OTHER: OURS, **{name: name for name in names}}


def _adapters(own: str, *peers: str, **others: str) -> dict[str, str]:
    return {OURS: own, OTHER: own, FLOOR: FLOOR, **{peer: peer for peer in peers}, **others}


TABLES = {
    "topics": Table(
        CASES, _adapters(OURS, "kickmsg", "iceoryx2", "zmq-ipc", "zmq-tcp", "pipe", "posix_ipc", *ON_REQUEST)
    ),
    "frames": Table((*FRAME_CASES, FRAME_BUS), _adapters(OURS, "kickmsg", "iceoryx2")),
    "channels": Table(CHANNEL_CASES, _adapters("channel", "kickmsg", "iceoryx2")),
    "queues": Table(QUEUE_CASES, _adapters("queue", "posix_ipc", "mp-queue", "pipe", **{"zmq-ipc": "zmq-queue"})),
    "records": Table(
        RECORD_CASES,
        _adapters("records", kickmsg="kickmsg-board", iceoryx2="iceoryx2-board"),
    ),
    "kinds": Table(
        KIND_CASES,
        {"topic": OURS, "channel": "channel", "queue": "queue", "seqlock": "records", "board": "board", FLOOR: FLOOR},
    ),
    "bus": Table(BUS_CASES, _adapters(OURS, "kickmsg", "iceoryx2", "zmq-ipc", "stock", pipe="pipes")),
    "recording": Table(RECORDING_CASES, _libraries("mcap", "foxglove-sdk", "pybag-sdk", "rosbags"), on_request=True),
    "decoding": Table(DECODING_CASES, _libraries("rosbags", "mcap-ros2-support", "pycapnp"), on_request=True),
    "columns": Table(COLUMN_CASES, _libraries("rosbags", "mcap-ros2-support"), on_request=True),
    "pipeline": Table(PIPELINE_CASES, _adapters(OURS, "by-hand", "by-hand-mcap", "by-hand-duckdb"), on_request=True),
}


def find_table(key: str) -> str:
    """Return the name of the table with this row."""
    return next(name for name, table in TABLES.items() if any(case.key == key for case in table.cases))


def list_words() -> list[str]:
    """Return the words that select rows: the names of all tables and rows."""
    return [*TABLES, *(case.key for table in TABLES.values() for case in table.cases)]


def select_cases(words: Iterable[str]) -> list[Case]:
    """Return the rows that the words select, in the order of the tables. Without words, endpoints are measured."""
    keys = set(words) or {name for name, table in TABLES.items() if not table.on_request}
    return [case for name, table in TABLES.items() for case in table.cases if {name, case.key} & keys]
