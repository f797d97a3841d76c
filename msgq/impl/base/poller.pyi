"""Waiting for several readers, of any kind, at once."""

from collections.abc import Coroutine
from typing import Any

from typing_extensions import disjoint_base

from msgq.impl.base.waiting import Waitable

@disjoint_base
class Poller:
    """Waits for several readers at once. One thread at a time may use it, and those that are registered."""

    def registerSocket(self, socket: Waitable) -> None:
        """Wait for this one, too (compatibility: stock's name); the poller keeps it alive.

        Registering it again does nothing.

        Raises
        ------
        EndpointClosedError : the socket is closed, or was never connected.
        """

    def unregisterSocket(self, socket: Waitable) -> None:
        """Wait for this one no longer (compatibility: stock's name).

        Raises
        ------
        KeyError : it is not registered.
        """

    def poll(self, timeout: float) -> list[Any]:
        """Return those of the registered sockets whose next receive returns (or raises) at once, in their order.

        Parameters
        ----------
        timeout : milliseconds to wait for the first (compatibility: stock's unit), 0 to 2**31 - 1, fractions rounded
            up; -1 waits for ever.

        Returns
        -------
        The registered objects themselves; an empty list when the time is up, or nothing is registered.

        Raises
        ------
        InvalidValueError : any other time-out.
        EndpointClosedError : a registered socket was closed.

        Notes
        -----
        Sleeps as `receive` does, with the GIL released. There is no limit to the number of sockets; beyond 128, and on
        Linux before 5.16, it looks every millisecond instead of sleeping.
        """

    def apoll(self, timeout: float) -> Coroutine[Any, Any, list[Any]]:
        """Do what `poll` does, in a task of an asyncio loop. The sockets are those that are registered at the call.

        Raises
        ------
        ConcurrentUseError : another task waits for one of the sockets.
        """
