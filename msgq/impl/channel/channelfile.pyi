"""A channel's file: opening and making it, and what all who have it open agree on. For `msgq.Channel`."""

from collections.abc import Callable

from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.channel import ChannelStats
from msgq.common.stats.endpoint import EndpointCounts

@disjoint_base
class ChannelFile:
    """A channel's file, mapped for as long as somebody has this. Made by `open_channel_file`.

    Until it is closed others see that the channel is in use, unless it looks on only. Any thread may use it, in a
    forked child too. What changes the file waits at max_kept 5 s for its lock, with the GIL
    released, and raises `SegmentError` then, or when the channel was removed.
    """

    @property
    def name(self) -> str:
        """The channel's name."""

    @property
    def prefix(self) -> str:
        """The prefix that it lives in; "": none."""

    @property
    def trust(self) -> object:
        """Whose files are used as one's own are, as it was given; None: MSGQ_TRUST says."""

    @property
    def writable(self) -> bool:
        """False: it was opened to look on, and nothing here may change it."""

    @property
    def path(self) -> str:
        """The channel file."""

    @property
    def inode(self) -> int:
        """The file's; a channel that is made anew under the same name has another."""

    @property
    def config(self) -> tuple[int | None, int | None, int | None, bool | None]:
        """Capacity in messages, limits of publishers and subscribers, stamps. None: not set yet.

        Of the subscribers None is also that there may be any number.
        """

    def configure(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        publishes: bool = False,
    ) -> None:
        """Agree on a configuration. The caller has checked the values.

        Parameters
        ----------
        capacity : messages that stay for those who are slower, a power of two, 2 to 8192; None: as others say.
        publishers : limit, 1 to 63; None as above.
        subscribers : limit, 1 to 64; None as above.
        stamps : whether messages have the time of their publishing; None as above.
        publishes : a publisher comes, so what nobody has said gets its default now.

        Raises
        ------
        ChannelMismatchError : somebody said something else before.
        """

    @property
    def messages(self) -> int:
        """How many were published so far, by all publishers."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of who made the channel."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""

    def describe(self, schema: Schema, replace: bool) -> Schema:
        """Describe the messages.

        Parameters
        ----------
        schema : to be set.
        replace : also when there is one. Else that stays.

        Returns
        -------
        The one that is there then.
        """

    def viewer(self, row: int) -> str:
        """Return name and pid of who has a bit in pins, or had it last; for texts."""

    def subscriber_names(self) -> list[str]:
        """Return names and pids of the subscribers that are listed and live; for texts."""

    def close(self) -> None:
        """Say no more that the channel is open here. Nothing is to be made of it afterwards."""

    def stats(self) -> ChannelStats:
        """Return who takes part, what the dead left, and who holds which views; it changes nothing."""

    def counts(self) -> EndpointCounts:
        """Return what moves; takes some microseconds for each subscriber that is listed, and changes nothing."""

    def clear_pools(self) -> ChannelStats:
        """Remove the pools of the dead that nobody can reach, and those of no row. Returns what was there before.

        Raises
        ------
        SegmentError : one cannot be removed.
        """

    def unlink(self, wanted: Callable[[ChannelStats], bool] | None = None) -> bool:
        """Remove the channel's files. Who has them mapped goes on, apart from newcomers.

        Parameters
        ----------
        wanted : is asked first, while nobody can join; None: remove them in any case.

        Returns
        -------
        Whether they were removed.

        Raises
        ------
        SegmentError : a file cannot be removed, or the channel was removed before.
        """

def open_channel_file(
    name: str,
    in_prefix: str,
    create: bool | None = False,
    mode: int | None = None,
    trust: str | None = None,
    writable: bool = False,
    creator: str = "",
) -> ChannelFile:
    """Open a channel, by default to look on, or make it.

    Parameters
    ----------
    name : the channel's, checked.
    in_prefix : the prefix it lives in, checked; "": none.
    create : True: only make it; False: only open it; None: either.
    mode : permissions of a new channel's files; None: MSGQ_MODE, or 0o600.
    trust : whose files are used as one's own are; None: MSGQ_TRUST.
    writable : False: only look on.
    creator : who makes it, for people.

    Raises
    ------
    InvalidValueError : `mode` or `trust` makes no sense.
    LayoutVersionError : it was made by another version of this library.
    CorruptSegmentError : the file is no channel.
    SegmentError : it is not there, or is there already, or cannot be opened or made; or its owner is not trusted.
    """

def remove_orphan(name: str, in_prefix: str, uid: int) -> bool:
    """Remove a pool of a channel that has no file.

    Returns
    -------
    False: it has one, or the pool is gone.
    """
