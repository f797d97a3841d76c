"""Work queues: each message goes to one consumer, the highest priority first.

Messages wait without processes (queues.md).

`MessageQueue` is the class of the chosen backend, without a wrapper. `Worker` and `JobClient` work with each backend.
"""

from __future__ import annotations

from msgq.impl import backend

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any

    from msgq.impl.workqueue import Job, MessageQueue
    from msgq.impl.workqueue.message import Message
    from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_EXCL, O_NONBLOCK
    from msgq.workqueue.envelope import DeadLetter, parse_dead_letter
    from msgq.workqueue.job_client import JobClient, JobFuture
    from msgq.workqueue.worker import WorkCounts, Worker
else:
    _MODULES = {
        "DeadLetter": "msgq.workqueue.envelope",
        "JobClient": "msgq.workqueue.job_client",
        "JobFuture": "msgq.workqueue.job_client",
        "Message": "msgq.impl.workqueue.message",
        "WorkCounts": "msgq.workqueue.worker",
        "Worker": "msgq.workqueue.worker",
        "parse_dead_letter": "msgq.workqueue.envelope",
    }

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in backend.CLASS_MODULES:
            return backend.load_backend_class(name)
        return getattr(backend.import_module(_MODULES.get(name, "msgq.impl.workqueue.options")), name)


__all__ = [
    "O_CREAT",
    "O_CREX",
    "O_EXCL",
    "O_NONBLOCK",
    "DeadLetter",
    "Job",
    "JobClient",
    "JobFuture",
    "Message",
    "MessageQueue",
    "WorkCounts",
    "Worker",
    "parse_dead_letter",
]
