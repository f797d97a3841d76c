"""The subscriber's socket."""

from collections.abc import Coroutine
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
from _typeshed import WriteableBuffer

from msgq.common.stats.topic import SubscriberStats, Tracked
from msgq.impl.ring.connection import SubConnection
from msgq.impl.sockets.pyzmq_names import Frame

class SubSocket(SubConnection):
    """Receives the messages of one endpoint.

    It gets what is published after it connected. Who lags behind by more than the ring holds continues at the present,
    and `lost` grows; a message is never torn, repeated, or out of order. Any number may subscribe.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`, except in `close`. After a fork the
    child's socket goes on from the same message, independent of the parent's. The methods that receive raise
    `EndpointClosedError` when the socket is closed or was never connected, and `CorruptSegmentError` when there are
    bytes in the ring that no publisher writes; the next call then goes on at the present. A socket that is deleted, or
    still open when the process ends, is closed.
    """

    @property
    def conflate(self) -> bool:
        """Whether `receive` passes over all but the newest message.

        May be set before `connect`, as with pyzmq, and stays; `StateError` on a connected socket.
        """

    @conflate.setter
    def conflate(self, value: bool) -> None: ...
    @property
    def lost(self) -> int | None:
        """Messages that were published after `connect` and passed over, by conflating or by being lapped.

        Exact as long as publishers of this library are at work, across their restarts too. None: unknown, because a
        stock publisher lapped us, which counts nothing.
        """

    @property
    def tracked(self) -> bool:
        """Whether each message carries its publish and origin time. Settled with the first message at the latest."""

    def setTimeout(self, timeout: float) -> None:
        """Choose how long a receive waits for a message.

        Parameters
        ----------
        timeout : milliseconds, 0 to 2**31 - 1, fractions rounded up; -1, the default, waits for ever. May be set before
            `connect`, and stays.

        Raises
        ------
        InvalidValueError : any other value.
        """

    def receive(self, non_blocking: bool = False) -> bytes | None:
        """Take the next message, or the newest if the socket conflates.

        Parameters
        ----------
        non_blocking : do not wait, whatever the time-out. `InvalidTypeError` for a time: see `setTimeout`.

        Returns
        -------
        A copy of the message. None when there was none in time.

        Notes
        -----
        Sleeps with the GIL released; Python's signal handlers run, and what they raise ends the wait. The GIL is also
        released while a message of 256 KiB or more is copy_message.
        """

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Take the next message with its times. The other methods leave them out.

        Parameters
        ----------
        non_blocking : do not wait, whatever the time-out.

        Returns
        -------
        The message, its publish and its origin time in nanoseconds. None when there was none in time.

        Raises
        ------
        StateError : the message that is there has no times: the topic is not tracked. It stays for the next call.

        Notes
        -----
        As `receive`.
        """

    def receive_many(self, max_messages: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the messages that are pending, oldest first.

        Parameters
        ----------
        max_messages : at most so many; None takes all that were published before the call.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Raises
        ------
        InvalidValueError : a negative `max_messages`.
        """

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into memory of the caller's.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        non_blocking : do not wait, whatever the time-out.

        Returns
        -------
        The size of the message, in bytes; what lies behind it in `buffer` keeps its content, unless a copy was
        overtaken and made anew. None when there was no message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It is not lost: the next call finds it.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        """

    def receive_array(
        self, dtype: npt.DTypeLike, max_messages: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages, each of which is one element, as an array.

        Parameters
        ----------
        dtype : of one message, of a fixed size and without Python objects. The bytes are taken as they are.
        max_messages : at most so many; None takes all that are there.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Returns
        -------
        A new array of shape (messages,): those up to the first that has another size. Empty when there was none.

        Raises
        ------
        MessageSizeError : the first message does not have the size of a `dtype`. It is not lost.
        InvalidValueError : a negative `max_messages`, or a dtype without bytes of its own.
        """

    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False]) -> Frame: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True) -> bytes | Frame:
        """Do what `receive` does, under pyzmq's name.

        Parameters
        ----------
        flags : 0, or NOBLOCK.
        copy : False: return a `Frame`, which is bytes with the attributes `bytes` and `buffer`.

        Raises
        ------
        Again : there is no message, or none came in time.
        """

    def recv_into(self, buffer: WriteableBuffer | npt.NDArray[Any], flags: int = 0) -> int:
        """Do what `receive_into` does, under pyzmq's name. flags: 0, or NOBLOCK.

        Parameters
        ----------
        buffer : as in `receive_into`.
        flags : as in `recv`.

        Raises
        ------
        Again : there is no message, or none came in time.
        """

    @property
    def rcvtimeo(self) -> int:
        """The time-out in milliseconds, under pyzmq's name."""

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None: ...
    @property
    def rcvhwm(self) -> int:
        """The limit of messages in the subscriber's queue, under pyzmq's name: 0 (none), whatever is set.

        There is no queue here: the ring is one, and `segment_size` its limit. With ZMQ it is `MSGQ_ZMQ_HWM`, unless set
        before `connect`, and `InvalidValueError` on a connected socket.
        """

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None: ...
    @property
    def linger(self) -> int:
        """As that of `PubSocket`. A subscriber has nothing that could linger."""

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    def close(self, linger: int | None = None) -> None:
        """Leave; also by leaving a with block. Closing twice does no harm.

        While another thread waits with it, that one is woken and gets `EndpointClosedError`.

        Parameters
        ----------
        linger : pyzmq's, milliseconds; a subscriber has nothing that could linger.

        Raises
        ------
        InvalidValueError : `linger` is below -1.
        """

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...
    def stats(self) -> SubscriberStats:
        """Return what this socket has received and lost since it connected."""
