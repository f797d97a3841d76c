"""Publish and subscribe between the processes of one machine, through shared memory."""

from msgq import errors
from msgq.common.settings import delete_fake_prefix, set_fake_prefix, toggle_fake_events
from msgq.errors import Again, IpcError, MsgqError, MultiplePublishersError
from msgq.impl import backend
from msgq.impl.base.argument_checks import NOBLOCK, POLLERR, POLLIN, POLLOUT
from msgq.topic.api import NO_TRAVERSAL_LIMIT, drain_sock_raw, pub_sock, sub_sock, zeromq_address

TYPE_CHECKING = False  # type checkers know it by its name; to import `typing` for it takes as long as all the rest
if TYPE_CHECKING:
    from msgq import stats
    from msgq.channel import Channel, Node
    from msgq.common.native import get_include
    from msgq.common.schema import Schema
    from msgq.records import Blackboard, Board, RecordQueue, Seqlock, SeqlockVector, StageTracer, tracked
    from msgq.records.clocks import time_ns, to_host_time
    from msgq.topic.api import Context, Poller, PubSocket, SubSocket, context
    from msgq.topic.fake_events import Event, SocketEventHandle, fake_event_handle, get_fake_prefix, wait_for_one_event
    from msgq.topic.masters import PubMaster, SubMaster
    from msgq.workqueue import JobClient, MessageQueue, Worker
else:
    _EVENTS = ("Event", "SocketEventHandle", "fake_event_handle", "get_fake_prefix", "wait_for_one_event")
    _OTHER_MODULES = dict.fromkeys(("Channel", "Node"), "msgq.channel")
    _OTHER_MODULES |= dict.fromkeys(("RecordQueue", "StageTracer", "tracked"), "msgq.records")
    _OTHER_MODULES |= dict.fromkeys(("time_ns", "to_host_time"), "msgq.records.clocks")
    _OTHER_MODULES |= dict.fromkeys(("JobClient", "Worker"), "msgq.workqueue")
    _OTHER_MODULES |= dict.fromkeys(("PubMaster", "SubMaster"), "msgq.topic.masters")
    _OTHER_MODULES |= dict.fromkeys(_EVENTS, "msgq.topic.fake_events")
    _OTHER_MODULES |= {"Schema": "msgq.common.schema", "get_include": "msgq.common.native", "stats": "msgq.stats"}
    _BACKEND_CLASSES = ("Blackboard", "Board", "MessageQueue", "Seqlock", "SeqlockVector")
    __getattr__, __dir__ = backend.make_lazy_attributes(globals(), _OTHER_MODULES, class_names=_BACKEND_CLASSES)
    del TYPE_CHECKING
    backend.preload()

__version__ = "0.1.0"

__all__ = [
    "NOBLOCK",
    "NO_TRAVERSAL_LIMIT",
    "POLLERR",
    "POLLIN",
    "POLLOUT",
    "Again",
    "Blackboard",
    "Board",
    "Channel",
    "Context",
    "Event",
    "IpcError",
    "JobClient",
    "MessageQueue",
    "MsgqError",
    "MultiplePublishersError",
    "Node",
    "Poller",
    "PubMaster",
    "PubSocket",
    "RecordQueue",
    "Schema",
    "Seqlock",
    "SeqlockVector",
    "SocketEventHandle",
    "StageTracer",
    "SubMaster",
    "SubSocket",
    "Worker",
    "__version__",
    "context",
    "delete_fake_prefix",
    "drain_sock_raw",
    "errors",
    "fake_event_handle",
    "get_fake_prefix",
    "get_include",
    "pub_sock",
    "set_fake_prefix",
    "stats",
    "sub_sock",
    "time_ns",
    "to_host_time",
    "toggle_fake_events",
    "tracked",
    "wait_for_one_event",
    "zeromq_address",
]
