"""Work queues: each message goes to one consumer, the highest priority first.

Messages wait without processes (queues.md).

`MessageQueue` is the class of the chosen backend, without a wrapper.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.impl import backend

if TYPE_CHECKING:
    from msgq.impl.workqueue import Job, MessageQueue
    from msgq.impl.workqueue.message import Message
    from msgq.impl.workqueue.options import O_CREAT, O_CREX, O_EXCL, O_NONBLOCK
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in backend.CLASS_MODULES:
            return backend.load_backend_class(name)
        return getattr(import_module(f"msgq.impl.workqueue.{'message' if name == 'Message' else 'options'}"), name)


__all__ = ["O_CREAT", "O_CREX", "O_EXCL", "O_NONBLOCK", "Job", "Message", "MessageQueue"]
