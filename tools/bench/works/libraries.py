"""Libraries that write and read MCAP, in the usual way of their users, for `recording.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tools.bench.file_cases import COMPRESSIONS
from tools.bench.works.files import DEFINITION, TYPE


class Library(NamedTuple):
    """A library that writes MCAP.

    Attributes:
        write: writes messages of 20 topics into a file; takes the path, payloads, and a compression.
        compressions: compressions that `write` supports.
        convert: converts payloads to the arguments of `write`.
    """

    write: Callable[[Path, Sequence[Any], str], None]
    compressions: Sequence[str] = COMPRESSIONS
    convert: Callable[[Sequence[bytes]], Sequence[Any]] = list


def _mcap_write(path: Path, payloads: Sequence[bytes], compression: str) -> None:
    from mcap.writer import CompressionType, Writer

    kind = CompressionType[compression.upper()]
    with path.open("wb") as file:
        writer = Writer(file, compression=kind)
        writer.start()
        channels = [writer.register_channel(f"/t{i}", "", 0) for i in range(20)]
        for time, data in enumerate(payloads):
            writer.add_message(channels[time % 20], time, data, time, time)
        writer.finish()


def _mcap_iterate(path: Path) -> int:
    from mcap.reader import make_reader

    with path.open("rb") as file:
        return sum(1 for _ in make_reader(file).iter_messages())


def _mcap_decode(path: Path) -> int:
    from mcap.reader import make_reader
    from mcap_ros2.decoder import DecoderFactory

    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        return sum(1 for _ in reader.iter_decoded_messages())


def _mcap_count(path: Path) -> int:
    from mcap.reader import make_reader

    with path.open("rb") as file:
        summary = make_reader(file).get_summary()
    assert summary is not None
    assert summary.statistics is not None
    return summary.statistics.message_count


def _foxglove_write(path: Path, payloads: Sequence[bytes], compression: str) -> None:
    import foxglove
    from foxglove.mcap import MCAPCompression, MCAPWriteOptions

    context = foxglove.Context()
    kind = {"none": None, "lz4": MCAPCompression.Lz4, "zstd": MCAPCompression.Zstd}[compression]
    options = MCAPWriteOptions(compression=kind)
    with foxglove.open_mcap(path, context=context, writer_options=options):
        schema = foxglove.Schema(name=TYPE, encoding="ros2msg", data=DEFINITION.encode())
        channel_options: Any = {"message_encoding": "cdr", "schema": schema, "context": context}
        channels = [foxglove.Channel(f"/t{i}", **channel_options) for i in range(20)]
        for time, data in enumerate(payloads):
            channels[time % 20].log(data, log_time=time)


def _rosbags_write(path: Path, payloads: Sequence[bytes], compression: str) -> None:
    from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer

    bag = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
    if compression == "zstd":
        bag.set_compression(CompressionMode.STORAGE, CompressionFormat.ZSTD)
    with bag as writer:
        kind: dict[str, Any] = {"msgdef": DEFINITION, "rihs01": "RIHS01_" + "0" * 64}
        channels = [writer.add_connection(f"/t{i}", TYPE, **kind) for i in range(20)]
        for time, data in enumerate(payloads):
            writer.write(channels[time % 20], time, data)


def _rosbags_iterate(path: Path) -> int:
    from rosbags.rosbag2 import Reader

    with Reader(path) as reader:
        return sum(1 for _ in reader.messages())


def _rosbags_decode(path: Path) -> int:
    from rosbags.rosbag2 import Reader
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_JAZZY)
    count = 0
    with Reader(path) as reader:
        for connection, _, data in reader.messages():
            store.deserialize_cdr(data, connection.msgtype)
            count += 1
    return count


def _rosbags_count(path: Path) -> int:
    from rosbags.rosbag2 import Reader

    with Reader(path) as reader:
        return int(reader.message_count)


def _pybag_convert(payloads: Sequence[bytes]) -> Sequence[Any]:
    """Its writer takes values of ROS only."""
    from pybag.ros2.humble.std_msgs import String

    return [String(data=payload[8:-1].decode()) for payload in payloads]


def _pybag_write(path: Path, texts: Sequence[Any], compression: str) -> None:
    from pybag.mcap_writer import McapFileWriter

    chunk: Any = {"chunk_size": 1 << 20, "chunk_compression": compression}
    with McapFileWriter.open(path, **chunk) as writer:
        for time, text in enumerate(texts):
            writer.write_message(f"/t{time % 20}", time, text)


def _pybag_decode(path: Path) -> int:
    from pybag.mcap_reader import McapFileReader

    with McapFileReader.from_file(path) as reader:
        return sum(1 for _ in reader.messages(reader.get_topics()))


def _pybag_count(path: Path) -> int:
    from pybag.mcap_reader import McapFileReader

    with McapFileReader.from_file(path) as reader:
        return sum(reader.get_message_count(topic) for topic in reader.get_topics())


WRITERS = {
    "mcap": Library(_mcap_write),
    "foxglove-sdk": Library(_foxglove_write),
    "pybag-sdk": Library(_pybag_write, convert=_pybag_convert),
    "rosbags": Library(_rosbags_write, ("none", "zstd")),
}
# These return the number of messages in the summary of a file, or of messages that were read.
SUMMARIES = {"mcap": _mcap_count, "pybag-sdk": _pybag_count, "rosbags": _rosbags_count}
ITERATIONS = {"mcap": _mcap_iterate, "rosbags": _rosbags_iterate}
DECODERS = {
    "mcap": _mcap_decode,
    "mcap-ros2-support": _mcap_decode,
    "pybag-sdk": _pybag_decode,
    "rosbags": _rosbags_decode,
}
