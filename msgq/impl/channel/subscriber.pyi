"""A channel's subscriber, and the views that it hands out."""

import sys
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
from _typeshed import WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.stats.channel import ChannelMessage, PublisherInfo
from msgq.impl.base.views import HeldView
from msgq.impl.base.waiting import Waitable
from msgq.impl.channel.channelfile import ChannelFile

@disjoint_base
class Subscriber(Waitable):
    """Receives the messages of a channel. Made by `msgq.Channel.subscriber` and `msgq.Node.subscribe`.

    It gets the messages of all publishers in one order, none twice and none torn. Who is slower than the channel's
    capacity allows loses the oldest ones, and `lost` says exactly how many. Any number may subscribe; the first 64 are
    listed with their names, and 64 at most take views. A passive one leaves no trace at all: it copies, and waits by
    looking every 0.05 to 1 ms.

    Time-outs are seconds: 0 looks once, None waits for ever. All methods that receive raise `EndpointClosedError` when
    it is closed, also by another thread while they wait, and ::

        LostMessagesError     messages were lost, with ``on_lost="raise"``; the next call goes on behind them
        CorruptSegmentError   another program wrote into the channel; the next call goes on behind that
        SegmentSizeError      another program made a file of the channel smaller: close it, and open it again
        SegmentError          the pool of a message cannot be opened. It is lost, unless memory or descriptors ran out

    One thread at a time may use it; a second one gets `ConcurrentUseError`, except in `close`. After a fork the child's
    goes on from the same message, with places of its own; views that came along are the parent's. One that is deleted,
    or open when the process ends, is closed.
    """

    def __new__(
        cls,
        file: ChannelFile,
        name: str,
        history: int,
        max_views: int,
        conflate: bool,
        newest: bool,
        raises: bool,
        own: bool,
        spin_us: int | None,
    ) -> Self:
        """Join the channel; `Channel.subscriber` says how, and checks what is given. `name` is the node's."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def max_views(self) -> int:
        """How many views it may hold at once."""

    @property
    def passive(self) -> bool:
        """Whether it only looks on."""

    @property
    def received(self) -> int:
        """Messages that it has received."""

    @property
    def lost(self) -> int:
        """Messages since it joined that it will never receive: overwritten, retracted, or passed over by conflating.

        One's own messages that are left out count neither here nor as received.
        """

    @property
    def resets(self) -> int:
        """How often publishers overtook it by more than the capacity."""

    @property
    def position(self) -> int:
        """Position of the message that it looks for next; 0 before the channel has a capacity."""

    @property
    def views_held(self) -> int:
        """Views that it keeps."""

    @property
    def last(self) -> ChannelMessage | None:
        """What is known of the message received last; None before the first one."""

    @overload
    def receive(self, timeout: None = None) -> bytes: ...
    @overload
    def receive(self, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if it conflates.

        Parameters
        ----------
        timeout : seconds to wait for one; 0 looks once, None waits for ever.

        Returns
        -------
        A copy of the message. None when there was none in time.

        Raises
        ------
        InvalidValueError : a time-out that is not possible.

        Notes
        -----
        Sleeps with the GIL released; signal handlers run, and what they raise ends the wait. The GIL is also released
        while a message of 256 KiB or more is copied.
        """

    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: None = None) -> int: ...
    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: float | None = None) -> int | None:
        """Take the next message into memory of the caller's.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        timeout : as in `receive`.

        Returns
        -------
        The size of the message, in bytes; what lies behind it in `buffer` keeps its content, unless a copy was
        overtaken and made anew. None when there was no message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It stays for the next call.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        """

    def receive_many(self, limit: int | None = None) -> list[bytes]:
        """Take the messages that are there, oldest first, and wait for none.

        Parameters
        ----------
        limit : at most so many; None takes all that were published before the call.

        Returns
        -------
        Copies of the messages; with ``on_lost="raise"`` those before a loss, which the next call raises.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        """

    def receive_array(
        self,
        dtype: npt.DTypeLike,
        limit: int | None = None,
        *,
        timeout: float | None = 0.0,
        publishers: list[PublisherInfo] | None = None,
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the messages that are there, each of which is one element, as an array.

        Parameters
        ----------
        dtype : of one message, of a fixed size and without Python objects. The bytes are taken as they are.
        limit : at most so many; None takes all that were published before the call.
        timeout : seconds to wait for the first one; 0 looks once, None waits for ever.
        publishers : a list to which who published each of them is added.

        Returns
        -------
        A new array of shape (messages,). It ends before a message of another size, and before a loss, so that its
        elements are consecutive; empty when nothing was there.

        Raises
        ------
        MessageSizeError : the first message does not have the size of a `dtype`. It stays for the next call.
        InvalidValueError : a negative `limit`, or a dtype without bytes of its own.
        """

    @overload
    def receive_view(self, timeout: None = None) -> Sample: ...
    @overload
    # Any instead of None: `with subscriber.receive_view(timeout=1.0) as sample` is the usual call.
    def receive_view(self, timeout: float | None = None) -> Sample | Any:
        """Take the next message without a copy.

        The first call takes one of the channel's 64 places for subscribers with views.

        Parameters
        ----------
        timeout : as in `receive`.

        Returns
        -------
        A view of the message, which does not change while the view is held. None when there was none in time.

        Raises
        ------
        TooManyViewsError : it holds `max_views` of them; release one.
        TooManySubscribersError : 64 others take views. `receive` works still.
        StateError : it is passive, and cannot hold anything.
        """

    def arecv(self) -> Coroutine[Any, Any, bytes]:
        """Return a copy of the next message, in a task of an asyncio loop. It waits only if there is none.

        A cancelled call takes nothing. One task at a time may wait.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits for it.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...

@disjoint_base
class Sample(HeldView):
    """A message in the memory of its publisher, as a read-only buffer of `len()` bytes. From `Subscriber.receive_view`.

    Its bytes stay what they are until it is released: by `release`, at the end of a ``with`` block, or when it and all
    memoryviews and arrays that were made from it are gone. It may outlive the subscriber, the publisher and the
    channel. Afterwards its buffer raises `EndpointClosedError`.

    While it is held, its publisher has one slot less. Any thread may use and release it. In a forked child it can be
    read for as long as the parent holds it, and releasing it does nothing.
    """

    @property
    def position(self) -> int:
        """The message's position among all messages of the channel."""

    @property
    def publish_time(self) -> int:
        """When it was published, nanoseconds of the host's clock (clock.md); 0: the channel has no stamps."""

    @property
    def origin_time(self) -> int:
        """When its contents came about, as its publisher said, nanoseconds of the host's clock; 0: it did not."""

    @property
    def publisher(self) -> PublisherInfo:
        """Who published it."""

    def __bool__(self) -> Literal[True]: ...
    # For Python 3.11, NumPy's stubs take no buffers but some built-in ones: `np.frombuffer(sample)` needs Any there.
    if sys.version_info >= (3, 12):
        def __enter__(self) -> Self: ...
    else:
        def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
