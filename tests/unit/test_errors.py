"""The tree of errors, their attributes, and texts that name the values."""

from __future__ import annotations

import errno
import inspect
import pickle
import queue
import subprocess
import sys

import pytest

import msgq
from msgq import errors
from msgq.errors import IpcError, MsgqError, MultiplePublishersError, SegmentError, WaitTimeoutError
from tests.cases import each_case
from tests.support import DEADLINE, ROOT

EVERYTHING = [getattr(errors, name) for name in dir(errors)]  # also the class that is imported late
ALL = [value for value in EVERYTHING if inspect.isclass(value) and issubclass(value, MsgqError)]


def test_stock_error_classes_are_exported_by_msgq() -> None:
    assert msgq.IpcError is IpcError
    assert msgq.MultiplePublishersError is MultiplePublishersError


def test_star_import_gives_all_errors() -> None:
    names: dict[str, object] = {}
    exec("from msgq.errors import *", names)
    assert {cls.__name__ for cls in ALL} <= names.keys()


@each_case("cls", ALL)
def test_error_has_endpoint_and_text(cls: type[MsgqError]) -> None:
    error = cls("what happened", "topic")
    assert error.endpoint == "topic"
    assert str(error) == "'topic': what happened"
    assert str(cls("what happened")) == "what happened"
    assert cls("what happened").endpoint == ""


@each_case("cls", ALL)
def test_pickled_error_keeps_class_text_and_errno(cls: type[MsgqError]) -> None:
    """multiprocessing hands errors from process to process."""
    error = cls("what happened", "topic", errno=errno.EPERM)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.endpoint, copy.errno) == (str(error), "topic", errno.EPERM)


def test_errno_of_error_is_argument_or_class_default() -> None:
    assert IpcError("x").errno is None
    assert IpcError("x", errno=errno.EPERM).errno == errno.EPERM
    assert MultiplePublishersError("x").errno == errno.EADDRINUSE
    assert SegmentError("x", "topic", "/path", errno.ENOSPC).errno == errno.ENOSPC


# Each class: its number, and the built-in class that it derives from besides.
BUILTIN: dict[type[MsgqError], tuple[int | None, type[BaseException]]] = {
    MsgqError: (None, Exception),
    IpcError: (None, Exception),
    MultiplePublishersError: (errno.EADDRINUSE, Exception),
    errors.EndpointNameError: (errno.EINVAL, ValueError),
    errors.UnknownTopicError: (None, KeyError),
    errors.InvalidValueError: (errno.EINVAL, ValueError),
    errors.InvalidTypeError: (errno.EINVAL, TypeError),
    errors.SocketOptionError: (errno.EINVAL, AttributeError),
    errors.StateError: (None, Exception),
    SegmentError: (None, Exception),
    errors.SegmentNotFoundError: (errno.ENOENT, FileNotFoundError),
    errors.SegmentExistsError: (errno.EEXIST, FileExistsError),
    errors.SegmentAccessError: (errno.EACCES, PermissionError),
    errors.SegmentSizeError: (errno.EINVAL, Exception),
    errors.LayoutVersionError: (errno.EPROTONOSUPPORT, Exception),
    errors.CorruptSegmentError: (errno.EUCLEAN, Exception),
    errors.MessageSizeError: (errno.EINVAL, ValueError),
    errors.MessageTooLargeError: (errno.EMSGSIZE, ValueError),
    errors.UndecodableMessageError: (errno.EBADMSG, ValueError),
    errors.EndpointClosedError: (errno.EBADF, Exception),
    errors.ChannelMismatchError: (errno.EINVAL, Exception),
    errors.PoolExhaustedError: (errno.EAGAIN, BlockingIOError),
    errors.TooManyViewsError: (errno.EMFILE, Exception),
    errors.TooManyPublishersError: (errno.EMFILE, Exception),
    errors.TooManySubscribersError: (errno.EMFILE, Exception),
    errors.LostMessagesError: (None, Exception),
    errors.SchemaMismatchError: (None, Exception),
    errors.QueueFullError: (errno.EAGAIN, queue.Full),
    errors.QueueAccessError: (errno.EBADF, Exception),
    errors.QueueBusyError: (errno.EBUSY, Exception),
    errors.QueueMismatchError: (errno.EINVAL, Exception),
    errors.LeaseExpiredError: (errno.ETIME, Exception),
    errors.JobFailedError: (None, Exception),
    errors.JobCancelledError: (None, Exception),
    errors.TooManyHandlesError: (errno.EMFILE, Exception),
    errors.RecordMismatchError: (errno.EINVAL, Exception),
    errors.RecordIndexError: (None, IndexError),
    errors.RecordTypeError: (None, TypeError),
    errors.MultipleWritersError: (errno.EBUSY, Exception),
    errors.TooManyWritersError: (errno.EMFILE, Exception),
    errors.KeyTakenError: (errno.EBUSY, Exception),
    errors.BoardFullError: (errno.ENOSPC, Exception),
    errors.BoardKeyError: (None, KeyError),
    errors.StreamNotFoundError: (None, LookupError),
    errors.MissingLibraryError: (None, ImportError),
    errors.PluginError: (None, ImportError),
    errors.MissingAttributeError: (None, AttributeError),
    errors.SubinterpreterError: (None, ImportError),
    errors.ForkedSocketError: (None, Exception),
    errors.ConcurrentUseError: (errno.EBUSY, Exception),
    errors.WaitTimeoutError: (errno.ETIMEDOUT, TimeoutError),
    errors.InterruptedWaitError: (errno.EINTR, InterruptedError),
    errors.EventTimeoutError: (errno.ETIMEDOUT, TimeoutError),
    errors.EventError: (None, RuntimeError),
    errors.ControllerDiedError: (errno.EOWNERDEAD, RuntimeError),
    errors.DeadlockError: (errno.EDEADLK, Exception),
    errors.SimulationFailedError: (None, AssertionError),
    errors.RecordingError: (None, Exception),
    errors.UnknownEndpointError: (None, KeyError),
    errors.StorageError: (None, Exception),
    errors.SparkError: (None, Exception),
    errors.Again: (errno.EAGAIN, BlockingIOError),
    errors.BackendNotAvailableError: (None, ImportError),
}


def test_each_error_class_is_tested_with_its_builtin_class() -> None:
    assert set(ALL) == set(BUILTIN)


@each_case("cls", ALL)
def test_error_class_has_expected_errno_and_builtin_base(cls: type[MsgqError]) -> None:
    number, builtin = BUILTIN[cls]
    assert cls("x").errno == number
    assert pickle.loads(pickle.dumps(cls("x"))).errno == number
    assert issubclass(cls, builtin)
    if issubclass(cls, OSError):
        assert type(OSError(number, "x")) is builtin, "Python itself gives this number another class"


@pytest.mark.parametrize(
    ("number", "cls"),
    [
        (errno.ENOENT, errors.SegmentNotFoundError),
        (errno.EEXIST, errors.SegmentExistsError),
        (errno.EACCES, errors.SegmentAccessError),
        (errno.EPERM, errors.SegmentAccessError),
        (errno.ENOSPC, SegmentError),
    ],
)
def test_segment_error_class_depends_on_errno(number: int, cls: type[SegmentError]) -> None:
    for error in (SegmentError("no", "topic", "/x", number), SegmentError("no", "topic", "/x", errno=number)):
        assert type(error) is cls
        assert (str(error), error.errno, error.path) == ("'topic': /x: no", number, "/x")


def test_queue_full_error_is_subclass_of_standard_queue_full() -> None:
    with pytest.raises(queue.Full):
        raise errors.QueueFullError("no room", "jobs", errno.ETIMEDOUT)
    assert issubclass(errors.QueueMismatchError, SegmentError)


def test_pool_exhausted_error_is_a_blocking_io_error() -> None:
    with pytest.raises(BlockingIOError) as caught:
        raise errors.PoolExhaustedError("all slots are held", "scan")
    assert (caught.value.errno, str(caught.value)) == (errno.EAGAIN, "'scan': all slots are held")
    assert isinstance(caught.value, IpcError)


def test_record_errors_are_subclasses_of_builtin_errors() -> None:
    for cls, kind in ((errors.RecordIndexError, IndexError), (errors.RecordTypeError, TypeError)):
        with pytest.raises(kind, match="'quotes': no"):
            raise cls("no", "quotes")
    with pytest.raises(KeyError) as caught:
        raise errors.BoardKeyError("nobody has ever written 'x'", "status")
    assert str(caught.value) == "'status': nobody has ever written 'x'"


@pytest.mark.parametrize("cls", [IpcError, MultiplePublishersError])
def test_stock_error_accepts_no_argument_or_endpoint_as_bytes(cls: type[IpcError]) -> None:
    assert (str(cls()), cls().endpoint) == ("messaging failure", "")
    assert (str(cls(endpoint=None)), cls(None).endpoint) == ("messaging failure", "")
    for error in (cls(b"topic"), cls(endpoint=b"topic"), pickle.loads(pickle.dumps(cls(b"topic")))):
        assert (str(error), error.endpoint) == ("'topic': messaging failure", "topic")


def test_segment_error_names_its_file() -> None:
    error = SegmentError("cannot open", "topic", "/dev/shm/x")
    assert error.path == "/dev/shm/x"
    assert str(error) == "'topic': /dev/shm/x: cannot open"


def test_wait_timeout_error_is_subclass_of_timeout_error() -> None:
    error = WaitTimeoutError("too late", "topic")
    assert isinstance(error, TimeoutError)
    assert str(error) == "'topic': too late"


def test_raising_again_exception_does_not_import_zmq(endpoint: str) -> None:
    # A new process is needed, because a forked process has the imports of its parent.
    code = f"from tests.unit import children; print(children.receive_raising_again({endpoint!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "[True, False]\n", done.stderr
