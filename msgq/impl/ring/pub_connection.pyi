"""The base of `PubSocket`: what it is apart from sending. Not to be used by itself."""

from types import TracebackType
from typing import Self

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.impl.base.context import Context

@disjoint_base
class PubConnection:
    """The place of a topic's publisher. It is used as `PubSocket`."""

    @property
    def endpoint(self) -> str:
        """The endpoint's name; "" before the first `connect`."""

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or was never connected."""

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
    ) -> None:
        """Become the endpoint's publisher; creates the topic if there is none.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        segment_size : bytes of the ring's data area, 128 to 2**32 - 1. A message may take a third of it. 0 takes an
            existing topic as it is, and makes a new one of 1 MiB.
        mode : permissions of the files if they are created, as 0o660; None: MSGQ_MODE, else 0o600.
        schema : what the messages are, kept beside the ring for tools; None leaves a former publisher's in place.
        trust : users, by name or id, with commas, whose files are used as one's own and root's are; "" is nobody. None:
            MSGQ_TRUST.
        tracked : True: each message carries when it was published and what it comes from (tracking.md), from the
            topic's first message on. None takes the topic as it is, False refuses a tracked one.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint.
        StateError : the context was terminated, the socket is connected; or the topic is tracked, or has messages
            that are not, and the other is wanted.
        InvalidValueError : a size, mode or user that is not possible.
        SegmentSizeError : the topic exists with another size.
        LayoutVersionError : another version of this library made the side segment.
        CorruptSegmentError : the files hold foreign bytes.
        MultiplePublishersError : the present publisher has been in the middle of a send for a second, or 16 processes
            that were taken over have not closed their sockets.
        SegmentError : a file cannot be created, opened, locked or mapped: no space, no permission, an owner who
            is not trusted.

        Notes
        -----
        Waits at most 5 s for the topic's lock, and 1 s for a send in progress, with the GIL released; signal handlers
        run meanwhile.
        """

    def close(self, linger: int | None = None) -> None:
        """Leave; what was published stays readable. Closing twice does nothing.

        Parameters
        ----------
        linger : pyzmq's, milliseconds; with ZMQ as the property `linger`. Nothing is under way here.

        Raises
        ------
        InvalidValueError : `linger` is below -1.
        ConcurrentUseError : another thread is in the middle of a send, or a reservation is open.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
