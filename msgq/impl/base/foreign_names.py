"""Hints for names of other libraries: `queue.put` raises an `AttributeError` that names `send`.

Each advice is an attribute of a hidden base class, and raises when it is read. So `hasattr` returns False, and the name
is not in `dir` and mocks. A method `__getattr__` would make each call of a method of a compiled class 19 ns slower.
"""

from __future__ import annotations

from msgq.errors import InvalidTypeError, MissingAttributeError
from msgq.impl.base.core import Context, add_hidden_base

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, TypeVar

    ClassType = TypeVar("ClassType", bound=type[Any])

_OPTION_NAMES = ("set", "setsockopt", "setsockopt_string", "getsockopt", "get_string")
_OPTION_ADVICE = dict.fromkeys(_OPTION_NAMES, "options are attributes, such as linger and rcvtimeo")
_SEND_ADVICE = dict.fromkeys(("put", "push", "publish", "write", "emit"), "use send(data)")
_SEND_ADVICE |= {
    "send_json": "use send(json.dumps(value).encode())",
    "send_multipart": "a message has one part; join the parts, and use send",
    "send_pyobj": "use send(pickle.dumps(value)); receivers must trust the sender",
    "send_string": "use send(text.encode())",
}
_RECEIVE_ADVICE = dict.fromkeys(("get", "pop", "read"), "use receive(timeout=seconds)")
_RECEIVE_ADVICE |= dict.fromkeys(("get_nowait", "recv_nowait"), "use receive(timeout=0)")
_RECEIVE_ADVICE |= {
    "recv_json": "use json.loads(...) of a received message",
    "recv_multipart": "a message has one part; use receive",
    "recv_pyobj": "use pickle.loads(...) of a received message, if you trust the sender",
    "recv_string": "use decode() of a received message",
}
_PUBLISHER_ADVICE = _SEND_ADVICE | {
    "flush": "no message is kept back: send publishes at once",
    "subscribe": "a publisher does not receive; use a subscriber",
}
_SUBSCRIBER_ADVICE = _RECEIVE_ADVICE | {
    **dict.fromkeys(("empty", "qsize"), "use receive(timeout=0), which returns None if no message waits"),
    **dict.fromkeys(("subscribe", "unsubscribe"), "a subscriber receives all messages; no filter is needed"),
    **dict.fromkeys(("publish", "send"), "a subscriber does not send; use a publisher"),
}

#: Class, or module: its missing names, with the advice that follows "... has no NAME; ".
ADVICE: dict[str, dict[str, str]] = {
    "PubSocket": _PUBLISHER_ADVICE
    | _OPTION_ADVICE
    | {
        **dict.fromkeys(("receive", "recv"), "a publisher does not receive; use msgq.sub_sock(name)"),
        "bind": "msgq.pub_sock(name) creates and connects a publisher",
        "send_json": "use msgq.pub_sock(name, schema=msgq.Schema.json(name)), whose send converts values to JSON",
    },
    "SubSocket": _SUBSCRIBER_ADVICE
    | _OPTION_ADVICE
    | {
        "bind": "msgq.sub_sock(name) creates and connects a subscriber",
        "poll": "use receive(timeout=seconds), or a msgq.Poller for several subscribers",
        "recv_json": "use json.loads(sub.recv())",
        "recv_string": "use sub.recv().decode()",
    },
    "MessageQueue": _SEND_ADVICE
    | _RECEIVE_ADVICE
    | {
        **dict.fromkeys(("ack", "nack", "task_done"), "use take(); the with block of the job acknowledges the message"),
        **dict.fromkeys(("append", "enqueue", "put"), "use send(data, priority, timeout=seconds)"),
        **dict.fromkeys(("consume", "dequeue", "get", "popleft"), "use receive(timeout=seconds), or take() for a job"),
        **dict.fromkeys(("empty", "qsize"), "use current_messages, the number of waiting messages"),
        "full": "use wait_space(timeout=0), which returns False if the queue is full",
        "join": "wait until current_messages, in_flight and delayed_messages are 0",
        "maxsize": "use max_messages",
        "put_nowait": "use send(data, timeout=0)",
        "recv": "use receive(timeout=seconds)",
    },
    "Worker": {
        **dict.fromkeys(("start", "work"), "use run(), which works in the calling thread until stop()"),
        **dict.fromkeys(("close", "shutdown", "terminate"), "use stop(), which ends run() after the current job"),
    },
    "JobClient": {
        **dict.fromkeys(("apply_async", "call", "delay", "enqueue", "put", "send"), "use submit(data)"),
        "shutdown": "use close()",
    },
    "JobFuture": {
        **dict.fromkeys(("get", "wait"), "use result(timeout=seconds)"),
        **dict.fromkeys(("done", "ready"), "use is_done()"),
        "add_done_callback": "wait in a thread: asyncio.to_thread(future.result)",
        "cancelled": "call result(timeout=0), which raises JobCancelledError",
        "exception": "use result(timeout=seconds), which raises JobFailedError",
        "revoke": "use cancel()",
    },
    "Channel": dict.fromkeys(("publish", "put", "send"), "use publisher(), which has send(data)")
    | dict.fromkeys(("get", "receive", "recv", "subscribe"), "use subscriber(), which has receive(timeout=seconds)"),
    "Publisher": _PUBLISHER_ADVICE | {"reserve": "use loan(size)"},
    "Subscriber": _SUBSCRIBER_ADVICE | {"recv": "use receive(timeout=seconds)"},
    "Node": {
        **dict.fromkeys(("create_publisher", "publish"), "use advertise(channel), whose publisher has send(data)"),
        **dict.fromkeys(
            ("create_client", "create_service"), "use JobClient and Worker, or mailboxes (docs/howto/request-reply.md)"
        ),
        **dict.fromkeys(
            ("create_subscriber", "create_subscription"),
            "use subscribe(channel), and receive its messages in a loop, because callbacks do not exist",
        ),
        "destroy_node": "use close()",
        "spin": "receive the messages of your subscribers in a loop, or wait with a msgq.Poller",
    },
    "RecordQueue": dict.fromkeys(("append", "publish", "put"), "use produce(records)")
    | dict.fromkeys(("get", "recv"), "use receive(timeout=seconds) for one record, or consume() for an array"),
    "Board": dict.fromkeys(("put", "set", "update", "write"), "use declare(key), whose entry has write(data)")
    | {"get": "use board[key]", "values": "use items()"},
    "SeqlockVector": dict.fromkeys(("append", "put", "set"), "use vector[index] = value")
    | {"get": "use vector[index]"},
    "LogReader": {
        **dict.fromkeys(("topic_names", "topics"), "use endpoints, the totals by name"),
        **dict.fromkeys(("get_messages", "iter_messages", "read", "read_messages"), "use: for message in log"),
        **dict.fromkeys(("df", "to_dataframe", "to_df"), "use to_pandas(endpoint)"),
        "duration": "use end_time - start_time, in nanoseconds",
        "filter": "use LogReader(path, endpoints=...), or between(start, end)",
    },
    "Context": {"destroy": "use term()", "socket": "use msgq.pub_sock(name) or msgq.sub_sock(name)"},
    "msgq": {
        **dict.fromkeys(("LogReader", "Player", "Recorder", "Writer"), "import the name from msgq.recording"),
        **dict.fromkeys(("PUB", "Publisher", "publish"), "use msgq.pub_sock(name)"),
        **dict.fromkeys(("Queue", "SimpleQueue"), "use msgq.MessageQueue(name)"),
        **dict.fromkeys(("SUB", "Subscriber", "Subscription", "subscribe"), "use msgq.sub_sock(name)"),
        **dict.fromkeys(("Simulation", "explore"), "import the name from msgq.simulation"),
        **dict.fromkeys(("VisionIpcClient", "VisionIpcServer"), "import the name from visionipc"),
        **dict.fromkeys(("create_node", "init_node"), "use msgq.Node(name)"),
    },
}


class ForeignName:
    """Class attribute that raises an error with an advice when the attribute is read.

    A subclass may have the name from another base class, which comes after the hidden one. Then there is no error.
    """

    __slots__ = ("_hidden_base", "_name", "_owner")

    def __init__(self, owner: str, hidden_base: type[Any], name: str) -> None:
        self._owner, self._hidden_base, self._name = owner, hidden_base, name

    def __get__(self, instance: object, owner: type[Any]) -> Any:
        try:
            return getattr(super(self._hidden_base, owner if instance is None else instance), self._name)
        except AttributeError:
            raise MissingAttributeError(describe_missing_name(self._owner, self._name)) from None


def describe_missing_name(owner: str, name: str) -> str:
    """Return the text of the error for a name of another library; "": the name is not known."""
    advice = ADVICE.get(owner, {}).get(name, "")
    return advice and f"{owner} has no {name}; {advice}"


def add_advice(kind: ClassType) -> ClassType:
    """Add the advice for a class, which is listed by its name. Usable as a decorator."""
    owner = kind.__name__
    base = type(f"ForeignNamesOf{owner}", (), {"__slots__": ()})
    for name in ADVICE[
        owner
    ]:  # not by `__set_name__`, because Python 3.11 replaces exceptions of signal handlers there
        setattr(base, name, ForeignName(owner, base, name))
    del base.__slots__  # type: ignore[attr-defined]  # of no use after the creation, and inherited by the class
    add_hidden_base(kind, base)
    return kind


def key_assignment_error(key: object, endpoint: str) -> InvalidTypeError:
    """Return the error for an assignment to a key of a board."""
    text = f"a board has no assignment to keys, because a key has an owner; use board.declare({key!r}).write(data)"
    return InvalidTypeError(text, endpoint)


add_advice(Context)
