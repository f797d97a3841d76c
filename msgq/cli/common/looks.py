"""Two looks at things whose names have a mark before them among topics, as `channel/NAME`, some time apart."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from msgq.cli.common.names import choices
from msgq.errors import EndpointNameError, SegmentError
from msgq.selection import Selection


class Made(Protocol):
    """What is known of such a thing. It is another one when it was made at another time."""

    @property
    def created_ns(self) -> int | None:
        """By the host's clock."""


_Stats = TypeVar("_Stats", bound=Made)


class Looks(Generic[_Stats]):
    """The things of one kind that a verb is about.

    Parameters
    ----------
    texts : names and patterns, of other kinds among them; none: all that are there.
    mark : before their names.
    inodes, read : return the names that are there, and what is known of one.
    """

    def __init__(
        self,
        texts: Sequence[str],
        prefix: str | None,
        mark: str,
        inodes: Callable[[str | None], Mapping[str, int]],
        read: Callable[[str, str | None], _Stats],
    ) -> None:
        self._wanted, self._prefix, self._mark = Selection(choices(texts) or None), prefix, mark
        self._inodes, self._read = inodes, read
        self._before, self._before_s = self._look(), time.monotonic()

    def _look(self) -> dict[str, _Stats]:
        found = {}
        for name in self._inodes(self._prefix):
            if self._mark + name in self._wanted:
                with contextlib.suppress(SegmentError, EndpointNameError):  # just removed, damaged, or not for us
                    found[name] = self._read(name, self._prefix)
        return found

    def twice(self, seconds: float) -> list[tuple[_Stats, _Stats | None, float]]:
        """Return each thing, as it was when this was made, and the seconds between, as many as asked for at least.

        None: it was not there, or was another one; or no seconds were asked for.
        """
        if not seconds or not self._before:
            return [(one, None, 0.0) for one in self._before.values()]
        time.sleep(max(0.0, self._before_s + seconds - time.monotonic()))
        now, elapsed_s = self._look(), time.monotonic() - self._before_s
        return [(one, self._same(name, one), elapsed_s) for name, one in now.items()]

    def _same(self, name: str, now: _Stats) -> _Stats | None:
        before = self._before.get(name)
        return before if before is not None and before.created_ns == now.created_ns else None
