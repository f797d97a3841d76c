"""The base of `SubSocket`: what it is apart from receiving. Not to be used by itself."""

from typing_extensions import disjoint_base

from msgq.impl.base.context import Context
from msgq.impl.base.waiting import Waitable

@disjoint_base
class SubConnection(Waitable):
    """A place in a topic, with a sleep that messages end. It is used as `SubSocket`."""

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        passive: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
    ) -> None:
        """Subscribe from now on; creates the topic if there is none, unless `passive`.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        address : the publisher's host. This backend is local and does not look at it.
        conflate : receive the newest message only.
        segment_size : bytes of the ring's data area, 128 to 2**32 - 1; 0 takes an existing topic as it is, and makes a
            new one of 1 MiB.
        mode : permissions of the files if they are created, as 0o660; None: MSGQ_MODE, else 0o600.
        passive : watch without a trace: map the topic, which must exist, read-only, and take no place in it. Statistics
            and `wait_for_readers` do not see such a subscriber, and it waits by looking every 0.05 to 1 ms.
        spin_us : microseconds that a wait looks for a message before it sleeps; None: MSGQ_SPIN_US, else 0.
        trust : users, by name or id, with commas, whose files are used as one's own and root's are; "" is nobody. None:
            MSGQ_TRUST.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint.
        StateError : the context was terminated, or the socket is connected.
        InvalidValueError : a size, mode, user or `spin_us` that is not possible.
        SegmentSizeError : the topic exists with another size.
        LayoutVersionError : another version of this library made the side segment.
        CorruptSegmentError : the files hold foreign bytes.
        SegmentError : a file cannot be created, opened, locked or mapped, or its owner is not trusted; for a passive
            subscriber, there is no topic.
        """
