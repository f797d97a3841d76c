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
from tests.support import DEADLINE, ROOT

ALL = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, MsgqError)]


def test_the_two_that_stock_has_are_at_the_top() -> None:
    assert msgq.IpcError is IpcError
    assert msgq.MultiplePublishersError is MultiplePublishersError


@pytest.mark.parametrize("cls", ALL)
def test_every_error_carries_endpoint_and_text(cls: type[MsgqError]) -> None:
    error = cls("what happened", "topic")
    assert error.endpoint == "topic"
    assert str(error) == "'topic': what happened"
    assert str(cls("what happened")) == "what happened"
    assert cls("what happened").endpoint == ""


@pytest.mark.parametrize("cls", ALL)
def test_every_error_survives_pickling(cls: type[MsgqError]) -> None:
    """multiprocessing hands errors from process to process."""
    error = cls("what happened", "topic", errno=errno.EPERM)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert (str(copy), copy.endpoint, copy.errno) == (str(error), "topic", errno.EPERM)


def test_errno_is_the_given_or_the_classs() -> None:
    assert IpcError("x").errno is None
    assert IpcError("x", errno=errno.EPERM).errno == errno.EPERM
    assert MultiplePublishersError("x").errno == errno.EADDRINUSE
    assert SegmentError("x", "topic", "/path", errno.ENOSPC).errno == errno.ENOSPC


@pytest.mark.parametrize(
    ("cls", "number"),
    [
        (errors.InvalidValueError, errno.EINVAL),
        (errors.EndpointNameError, errno.EINVAL),
        (errors.MessageTooLargeError, errno.EMSGSIZE),
        (errors.EndpointClosedError, errno.EBADF),
        (errors.QueueAccessError, errno.EBADF),
        (errors.QueueFullError, errno.EAGAIN),
        (errors.PoolExhaustedError, errno.EAGAIN),
        (errors.TooManyHandlesError, errno.EMFILE),
    ],
)
def test_errors_have_the_number_that_posix_gives_them(cls: type[IpcError], number: int) -> None:
    assert cls("x").errno == number
    assert pickle.loads(pickle.dumps(cls("x"))).errno == number


def test_a_full_queue_is_caught_as_the_standard_librarys() -> None:
    with pytest.raises(queue.Full):
        raise errors.QueueFullError("no room", "jobs", errno.ETIMEDOUT)
    assert issubclass(errors.QueueMismatchError, SegmentError)


def test_an_exhausted_pool_is_caught_as_the_built_in_error_that_kickmsg_raises() -> None:
    with pytest.raises(BlockingIOError) as caught:
        raise errors.PoolExhaustedError("all slots are held", "scan")
    assert (caught.value.errno, str(caught.value)) == (errno.EAGAIN, "'scan': all slots are held")
    assert isinstance(caught.value, IpcError)


def test_errors_of_records_are_caught_as_the_built_in_ones() -> None:
    for cls, kind in ((errors.RecordIndexError, IndexError), (errors.RecordTypeError, TypeError)):
        with pytest.raises(kind, match="'quotes': no"):
            raise cls("no", "quotes")
    with pytest.raises(KeyError) as caught:
        raise errors.BoardKeyError("nobody has ever written 'x'", "status")
    assert str(caught.value) == "'status': nobody has ever written 'x'"


@pytest.mark.parametrize("cls", [IpcError, MultiplePublishersError])
def test_stocks_arguments_are_nothing_or_the_endpoint_as_bytes(cls: type[IpcError]) -> None:
    assert (str(cls()), cls().endpoint) == ("messaging failure", "")
    assert (str(cls(endpoint=None)), cls(None).endpoint) == ("messaging failure", "")
    for error in (cls(b"topic"), cls(endpoint=b"topic"), pickle.loads(pickle.dumps(cls(b"topic")))):
        assert (str(error), error.endpoint) == ("'topic': messaging failure", "topic")


def test_a_segment_error_names_its_file() -> None:
    error = SegmentError("cannot open", "topic", "/dev/shm/x")
    assert error.path == "/dev/shm/x"
    assert str(error) == "'topic': /dev/shm/x: cannot open"


def test_a_time_out_is_caught_as_a_time_out() -> None:
    error = WaitTimeoutError("too late", "topic")
    assert isinstance(error, TimeoutError)
    assert str(error) == "'topic': too late"


def test_again_does_not_import_zmq(endpoint: str) -> None:
    code = f"from tests.unit import children; print(children.again({endpoint!r}))"  # a forked process has other imports
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE)
    assert done.stdout == "[True, False]\n", done.stderr
