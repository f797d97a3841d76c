"""Records of NumPy dtypes (vectors, boards, queues), and tracers of stages.

`SeqlockVector`, `Seqlock` and `Board` are classes of the chosen backend (docs/guides/records.md). `RecordQueue` uses
topics or channels. `StageTracer` and `tracked` work with every backend (docs/guides/tracking.md).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.impl import backend

if TYPE_CHECKING:
    from msgq.impl.records import Blackboard, Board, Seqlock, SeqlockVector
    from msgq.impl.records.values import Changes, Value
    from msgq.records.core import RecordQueue
    from msgq.records.stage_tracer import StageTracer
    from msgq.records.stamps import tracked
else:
    _MODULES = {
        "Changes": "msgq.impl.records.values",
        "RecordQueue": "msgq.records.core",
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
