"""Names of other libraries raise an error with the name to use, and exist for nobody else."""

from __future__ import annotations

import copy
import inspect
import pickle
from importlib import import_module
from typing import Any
from unittest import mock

import pytest

import msgq
from msgq.errors import InvalidTypeError, MissingAttributeError
from msgq.impl import backend as backends
from msgq.impl.base.foreign_names import ADVICE, ForeignName
from msgq.recording import LogReader
from msgq.workqueue import JobFuture
from tests.cases import each_case

BACKENDS = ("msgq", "zmq", "fake")


def find_classes() -> dict[str, type[Any]]:
    """Return all classes with advice, by backend and name."""
    found: dict[str, type[Any]] = {}
    for name in BACKENDS:
        module = backends.load_backend(name)
        found |= {f"{name}.{kind}": getattr(module, kind) for kind in ("Context", "PubSocket", "SubSocket")}
        if name != "zmq":
            kinds = ("Board", "MessageQueue", "SeqlockVector")
            found |= {f"{name}.{kind}": backends.load_backend_class(kind, module) for kind in kinds}
    for name, path in (("msgq", "msgq.impl.channel"), ("fake", "msgq.impl.fake.channel")):
        module = import_module(path)
        found |= {f"{name}.{kind}": getattr(module, kind) for kind in ("Publisher", "Subscriber")}
    kinds_of_all_backends = (
        JobFuture,
        LogReader,
        msgq.Channel,
        msgq.JobClient,
        msgq.Node,
        msgq.RecordQueue,
        msgq.Worker,
    )
    return found | {kind.__name__: kind for kind in kinds_of_all_backends}


CLASSES = find_classes()
NAMES = {f"{kind}.{name}": (cls, name) for kind, cls in CLASSES.items() for name in ADVICE[cls.__name__]}


def test_each_class_of_the_table_has_its_advice() -> None:
    assert {cls.__name__ for cls in CLASSES.values()} | {"msgq"} == set(ADVICE)


@each_case("cls, name", NAMES.values(), NAMES)
def test_foreign_names_are_missing_and_replace_no_method(cls: type[Any], name: str) -> None:
    assert not hasattr(cls, name)
    defined = [vars(base)[name] for base in inspect.getmro(cls) if name in vars(base)]
    assert [type(value) for value in defined] == [ForeignName]


@pytest.mark.parametrize("name", sorted(ADVICE["msgq"]))
def test_foreign_name_of_the_module_raises_with_advice(name: str) -> None:
    with pytest.raises(MissingAttributeError, match=f"msgq has no {name}; "):
        getattr(msgq, name)


@pytest.mark.parametrize("name", ["Recorder", "LogReader", "Simulation"])
def test_import_of_a_foreign_name_raises_with_advice(name: str) -> None:
    module = name.lower() if name == "Simulation" else "recording"
    with pytest.raises(ImportError, match=f"msgq has no {name}; import the name from msgq.{module}"):
        exec(f"from msgq import {name}")


def test_import_of_an_unknown_name_raises_the_usual_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'nosuch' from 'msgq'"):
        exec("from msgq import nosuch")


def test_unknown_name_raises_the_usual_error(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, pytest.raises(AttributeError, match="'nosuch'"):
        pub.nosuch  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="module 'msgq' has no attribute 'nosuch'"):
        msgq.nosuch  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture
def queue(endpoint: str) -> Any:
    with msgq.MessageQueue(endpoint) as queue:
        yield queue
        queue.unlink()


def test_error_names_the_method_to_use(queue: Any) -> None:
    with pytest.raises(AttributeError, match=r"MessageQueue has no put; use send\(data, priority, timeout=seconds\)"):
        queue.put(b"job")
    assert not hasattr(queue, "put")
    assert getattr(queue, "put", "default") == "default"


def test_error_of_a_channel_names_its_publisher_and_subscriber(endpoint: str) -> None:
    with msgq.Channel(endpoint) as channel:
        with pytest.raises(MissingAttributeError, match=r"Channel has no send; use publisher\(\)"):
            channel.send(b"")  # type: ignore[attr-defined]
        with pytest.raises(MissingAttributeError, match=r"Channel has no receive; use subscriber\(\)"):
            channel.receive()  # type: ignore[attr-defined]
        channel.unlink()


def test_error_of_a_future_names_the_method_to_use(queue: Any) -> None:
    with msgq.JobClient(queue) as client:
        future: Any = client.submit(b"job")
        with pytest.raises(AttributeError, match=r"JobFuture has no get; use result\(timeout=seconds\)"):
            future.get(timeout=1)
        with pytest.raises(AttributeError, match=r"JobFuture has no done; use is_done\(\)"):
            future.done()
        with pytest.raises(AttributeError, match=r"JobClient has no enqueue; use submit\(data\)"):
            client.enqueue(b"job")  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"Worker has no start; use run\(\)"):
        msgq.Worker(queue, print).start()  # type: ignore[attr-defined]


@each_case("kind", CLASSES)
def test_dir_and_help_of_a_class_have_no_foreign_names(kind: str) -> None:
    cls = CLASSES[kind]
    assert not set(ADVICE[cls.__name__]) & (set(dir(cls)) | {each.name for each in inspect.classify_class_attrs(cls)})


def test_dir_of_an_object_has_no_foreign_names(queue: Any, endpoint: str) -> None:
    assert not set(ADVICE["MessageQueue"]) & set(dir(queue))
    assert {"send", "receive", "endpoint"} <= set(dir(queue))
    with msgq.pub_sock(endpoint, schema="f8") as pub:
        assert not set(ADVICE["PubSocket"]) & set(dir(pub))


def test_objects_are_pickled_and_copied_as_before(queue: Any, endpoint: str) -> None:
    with pickle.loads(pickle.dumps(queue)) as other:
        assert other.name == queue.name
    with msgq.sub_sock(endpoint) as sub, pytest.raises(TypeError, match="cannot be pickled or copied"):
        copy.copy(sub)


def test_mocks_of_objects_have_no_foreign_names(queue: Any) -> None:
    kind = msgq.MessageQueue
    for imitation in (mock.create_autospec(kind, instance=True), mock.Mock(spec=queue), mock.Mock(spec=kind)):
        imitation.send(b"job")
        with pytest.raises(AttributeError):
            imitation.put(b"job")


def test_subclass_may_define_a_foreign_name(queue: Any) -> None:
    class PutQueue(msgq.MessageQueue):
        def put(self, data: bytes) -> None:
            self.send(data)

    with PutQueue(queue.name) as other:
        other.put(b"job")
        assert other.receive_many()[0].data == b"job"
        with pytest.raises(MissingAttributeError, match="receive"):
            other.get()  # type: ignore[attr-defined]


def test_subclass_may_inherit_a_foreign_name(queue: Any) -> None:
    class PutMethod:
        def put(self, data: bytes) -> None:
            self.send(data)  # type: ignore[attr-defined]

    class PutQueue(msgq.MessageQueue, PutMethod):
        pass

    with PutQueue(queue.name) as other:
        other.put(b"job")
        PutQueue.put(other, b"job")
        assert other.current_messages == 2
        with pytest.raises(MissingAttributeError, match="receive"):
            other.get()  # type: ignore[attr-defined]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("data", "match"), [("text", r"give text.encode\(\)"), ({"a": 1}, r"Schema.json"), (5, "json.dumps")]
)
def test_topic_refuses_objects_without_bytes_with_a_cure(
    backend: str, data: Any, match: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with msgq.pub_sock(endpoint, backend=backend) as pub:
        with pytest.raises(InvalidTypeError, match=match):
            pub.send(data)
        assert pub.stats().messages == 0


def test_other_kinds_refuse_objects_without_bytes_with_a_cure(queue: Any, endpoint: str) -> None:
    with msgq.Channel(endpoint) as channel, channel.publisher() as publisher:
        for send in (publisher.send, queue.send):
            with pytest.raises(InvalidTypeError, match=r"text.encode\(\)"):
                send("text")  # type: ignore[arg-type]
        channel.unlink()
    with msgq.Board(endpoint) as board:
        with board.declare("key") as entry, pytest.raises(InvalidTypeError, match=r"text.encode\(\)"):
            entry.write("text")  # type: ignore[arg-type]
        with pytest.raises(InvalidTypeError, match=r"board.declare\('key'\).write\(data\)"):
            board["key"] = b"value"  # type: ignore[index]
        board.unlink()
