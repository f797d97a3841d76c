"""The two sides of a stream's table of leases: which client holds which buffer."""

from typing import final

from msgq.impl.base.core import Mapping, PinOwner

MAX_BUFFERS: int
MAX_CLIENTS: int
TABLE_BYTES: int
VERSION: int

@final
class ServerLeases:
    """The server's side. Not to be used after a fork, in the child."""

    @property
    def taken_back(self) -> int:
        """Clients that died holding a buffer."""

    @property
    def newest(self) -> int:
        """The generation of the newest frame; 0: none so far."""

    @property
    def buffers(self) -> int:
        """Number of buffers in use for frames."""

    def __init__(self, region: Mapping, fd: int, buffers: int, endpoint: str) -> None:
        """Begin a table, in zeroed writable memory of TABLE_BYTES, for 1 to MAX_BUFFERS buffers.

        Parameters
        ----------
        fd : descriptor of that memory, which stays open: by it clients are asked whether they live.
        """

    def admit(self, pid: int) -> int:
        """Give a client a row; pid 0: it cannot be seen from here.

        Raises
        ------
        IpcError : MAX_CLIENTS live clients have rows.
        """

    def admit_stock(self) -> None:
        """From now on frames go round all buffers: a stock client gets them, and nothing will tell when it is gone."""

    def drop_client(self, row: int, pid: int) -> None:
        """Take a row away from a client that was never told of it, or cannot use it.

        Parameters
        ----------
        row : nothing happens when it is not this client's.
        pid : the client's.
        """

    def grow(self) -> None:
        """Add a buffer, whose memory the caller has allocated. It has the next index.

        Raises
        ------
        SegmentError : the table has MAX_BUFFERS buffers.
        """

    def clients(self) -> list[int]:
        """Return the pids of the clients that are there."""

    def count_held(self) -> int:
        """Return how many buffers some client holds."""

@final
class ClientLeases(PinOwner):
    """The client's side: one row. The row is given back when the last reference, a frame's included, goes.

    Its views (`PinnedView`) hold a buffer each, which the server leaves alone until they are gone.
    """

    @property
    def since(self) -> int:
        """The generation of the newest frame when the server gave the row; 0: there was none."""

    def __init__(self, region: Mapping, fd: int, row: int, since: int, endpoint: str) -> None:
        """Take the row, for as long as this process lives and does not call exec.

        Parameters
        ----------
        fd : descriptor of the region's memory, not needed afterwards.
        row, since : as the server's grant says.
        """

    @property
    def dropped(self) -> int:
        """Frames that the server dropped since this row was taken, because clients held all buffers."""

    def end(self) -> None:
        """Await no more frames; those that are held stay so."""
