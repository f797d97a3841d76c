"""The rows of the tables of files: recording and reading, decoding of payloads, and columns."""

from dataclasses import replace

from tools.bench.cases import KIB, Case, Target

COMPRESSIONS = ("none", "lz4", "zstd")
_MESSAGES = 1_000_000
_AHEAD = Target("peer", 1.0, "≥ the best peer")


def _work(key: str, title: str, role: str, messages: int) -> Case:
    """Return a row with things per second of processor time."""
    return Case(key, title, "cpu_rate", role, messages=messages, slices=3, repeats=2, limit_s=600)


def _texts(
    key: str,
    title: str,
    role: str,
    messages: int = _MESSAGES,
    *,
    aim: tuple[float, str] | None = None,
    size: int = 64,
    endpoints: int = 20,
) -> Case:
    """Return a row with a file of texts. `aim`: least figure of msgq, as number and as text."""
    targets = () if aim is None else (Target("absolute", aim[0], f"≥ {aim[1]}"),)
    case = _work(key, title, role, messages)
    return replace(case, targets=targets, kind="text", size=size, endpoints=endpoints)


def _records(size: int, name: str, messages: int, rate: float, target: Target) -> tuple[Case, ...]:
    """Record messages of a bus; libraries write messages from memory."""
    case = replace(
        _work("", "", "recording.record", messages), targets=(target,), peer_role="publish", size=size, rate=rate
    )
    return tuple(
        replace(case, key=f"record_{name}_{kind}", title=f"record messages of {size:,} B, {kind}", kind=kind)
        for kind in COMPRESSIONS
    )


RECORDING_CASES = (
    *_records(64, "64", _MESSAGES, 1.5e6, Target("foxglove-sdk", 5.0, "≥ 5x foxglove-sdk")),
    *_records(KIB, "1k", 200_000, 3e5, _AHEAD),
    *_records(64 * KIB, "64k", 4000, 6e3, _AHEAD),
    replace(_texts("info_large", "what is in 1 GB, files", "reading.info", size=1000), targets=(_AHEAD,)),
    _texts("info_small", "what is in 1,000 messages, files", "reading.info_often", 1000),
    _texts("info_process", "a process says what is in 1 GB, files", "reading.info_process", size=1000),
    _texts("iterate", "iterate over messages of 64 B", "reading.iterate", aim=(2e6, "2M/s")),
    _texts("ros2_values", "decode texts of ROS 2, one by one", "reading.decode", _MESSAGES // 2, endpoints=1),
    _texts("ros2_columns", "decode texts of ROS 2, by columns", "reading.columns", _MESSAGES // 2, endpoints=1),
    _texts("batches", "batches of messages of 64 B", "reading.batches", aim=(6e6, "6M/s")),
    _texts("filter_topic", "filter: 1 of 20 topics, 64 B", "recording.filter_topic", aim=(2e6, "2M/s")),
    _texts("filter_all", "filter: all messages of 64 B, chunks as they are", "recording.filter_all"),
    _texts("play", "play messages of 64 B, unlimited", "recording.play", aim=(1e6, "1M/s")),
    _texts("play_start", "begin to play 1 GB, files", "recording.start_playing", size=1000),
)

_PAYLOADS = {
    "json": "JSON, 9 fields",
    "msgpack": "MessagePack, 9 fields",
    "cbor": "CBOR, 9 fields",
    "struct": "struct of NumPy, 3 fields",
    "cdr_imu": "CDR of ROS 2, Imu",
    "ros1_imu": "ROS 1, Imu",
    "cdr_laser_scan": "CDR of ROS 2, LaserScan",
    "ros1_laser_scan": "ROS 1, LaserScan",
    "cdr_joint_state": "CDR of ROS 2, JointState",
    "ros1_joint_state": "ROS 1, JointState",
    "flatbuffer": "FlatBuffers, 120 fields",
    "capnproto_small": "Cap'n Proto, 2 fields",
    "capnproto_can": "Cap'n Proto, 50 CAN frames",
}
DECODING_CASES = tuple(
    replace(_work(f"decode_{kind}", f"decode a payload to a dict: {title}", "decoding.decode", 0), kind=kind)
    for kind, title in _PAYLOADS.items()
)

_FILES = {
    "imu": ("Imu, 320 B", 100_000),
    "tf": ("TFMessage of ten transforms", 10_000),
    "cloud": ("PointCloud2, 320 KB", 300),
    "json": ("JSON, 60 B", 50_000),
    "struct": ("struct, 40 B", 200_000),
}
# Key, reading, and text.
_READINGS = (
    ("columns", "columns", "`decoded_batches`"),
    ("arrow", "arrow", "`to_arrow`"),
    ("values", "decode", "`decoded()`, one by one"),
)
# Times the messages of the other rows, with a kind for each file.
_MANY = {"imu": 3, "imu_schemas": 3, "json": 2, "struct": 6}
_MANY_READINGS = {"joined": "decoding only", "parquet": "`to_parquet`"}


def _interleaved(kind: str, times: int, reading: str, endpoints: int) -> Case:
    title, messages = _FILES[kind.removesuffix("_schemas")]
    own = ", each endpoint with another schema" if kind.endswith("_schemas") else ""
    title = f"{title}{own}, {endpoints} interleaved endpoints: {_MANY_READINGS[reading]}"
    case = _work(f"{reading}_{kind}_{endpoints}", title, f"reading.{reading}", times * messages)
    return replace(case, kind=kind, endpoints=endpoints)


COLUMN_CASES = (
    *(
        replace(_work(f"{key}_{kind}", f"{title}: {text}", f"reading.{reading}", messages), kind=kind)
        for kind, (title, messages) in _FILES.items()
        for key, reading, text in _READINGS
    ),
    *(
        _interleaved(kind, times, reading, endpoints)
        for kind, times in _MANY.items()
        for reading in _MANY_READINGS
        for endpoints in (1, 300)
    ),
)
