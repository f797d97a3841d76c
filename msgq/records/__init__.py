"""Records of NumPy dtypes: vectors, boards and queues; and what tells where the time goes between messages.

`SeqlockVector`, `Seqlock` and `Board` *are* the chosen backend's classes, so a read is one call into them (records.md).
`RecordQueue` is a face of topics and channels; `StageTracer` and `tracked` are of every backend (tracking.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.impl import backend

if TYPE_CHECKING:
    from msgq.impl.records import Blackboard, Board, Seqlock, SeqlockVector
    from msgq.impl.records.values import Changes, Value
    from msgq.records.queue import RecordQueue
    from msgq.records.stage_tracer import StageTracer
    from msgq.records.stamps import tracked
else:
    _MODULES = {
        "Changes": "msgq.impl.records.values",
        "RecordQueue": "msgq.records.queue",
        "StageTracer": "msgq.records.stage_tracer",
        "Value": "msgq.impl.records.values",
        "tracked": "msgq.records.stamps",
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        return backend.load_backend_class(name)


__all__ = [
    "Blackboard",
    "Board",
    "Changes",
    "RecordQueue",
    "Seqlock",
    "SeqlockVector",
    "StageTracer",
    "Value",
    "tracked",
]
