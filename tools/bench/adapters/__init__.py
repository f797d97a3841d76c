"""The measured systems and their adapters, one small file each. `SYSTEMS` has the order of the columns."""

import importlib

from tools.bench.adapters.base import System

OURS = "msgq"
OTHER = "other"  # msgq of the checkout that --against names
FLOOR = "floor"
ON_REQUEST = ("stock", "msgq-zmq")  # measured only if --peers names it
SYSTEMS = (
    *(OURS, OTHER, FLOOR, "kickmsg", "iceoryx2", "zmq-ipc", "zmq-tcp", "pipe", "posix_ipc", "mp-queue"),
    *ON_REQUEST,
    *("mcap", "foxglove-sdk", "pybag-sdk", "rosbags", "mcap-ros2-support", "pycapnp", "by-hand", "by-hand-mcap"),
    "by-hand-duckdb",
)
KINDS = ("topic", "channel", "queue", "seqlock", "board")  # the systems of the table of kinds: all are msgq
COLUMNS = (*KINDS, *SYSTEMS)

_CLASSES = {
    "msgq": "ours:Ours",
    "channel": "channel:Channel",
    "queue": "queue:Queue",
    "records": "records:Records",
    "board": "records:OneBoard",
    "floor": "c_floor:Floor",
    "stock": "stock:Stock",
    "kickmsg": "kickmsg:Kickmsg",
    "iceoryx2": "iceoryx2:Iceoryx2",
    "zmq-ipc": "zeromq:ZeromqIpc",
    "zmq-tcp": "zeromq:ZeromqTcp",
    "zmq-queue": "zeromq_queue:ZeromqQueue",
    "pipe": "pipe:Pipe",
    "pipes": "pipes:Pipes",
    "posix_ipc": "posix_mq:PosixQueue",
    "mp-queue": "mp_queue:MpQueue",
    "kickmsg-board": "kickmsg_board:KickmsgBoard",
    "iceoryx2-board": "iceoryx2_board:Iceoryx2Board",
    "msgq-zmq": "ours_zmq:OursZmq",
}
_PACKAGES = {"by-hand": "pyspark", "by-hand-mcap": "pyspark", "by-hand-duckdb": "duckdb"}


def adapter(name: str) -> type[System]:
    """Return the adapter's class. The system itself is imported when the class is instantiated."""
    if name not in _CLASSES:  # a library without endpoints; `works` has its calls
        return type("Package", (System,), {"name": name, "package": _PACKAGES.get(name, name)})
    module, kind = _CLASSES[name].split(":")
    system_class: type[System] = getattr(importlib.import_module(f"tools.bench.adapters.{module}"), kind)
    return system_class
