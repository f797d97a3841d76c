"""Where a player sends: an outlet for each endpoint of a log, all of them there before the first message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from msgq.errors import InvalidValueError, QueueFullError, RecordingError
from msgq.outlets import Outlet, Place, Played, UnplayableError, Wanted, open_outlet
from msgq.recording.player.plan import plan
from msgq.recording.reader.reader import LogReader
from msgq.schema import Schema

if TYPE_CHECKING:
    from visionipc import VisionIpcServer

_CLOCK_SCHEMA = Schema("time_ns", "struct", b'"<u8"')


class Outlets:
    """The outlets of a player.

    Attributes
    ----------
    by_name : by the new name of the endpoint.
    skipped : why an endpoint of the log is not played, by its name there.
    unplayed : messages that could not be played, by the new name of the endpoint, a colon, and the reason.
    closed : whether they were closed.
    """

    def __init__(
        self, log: LogReader, before: LogReader, remap: Mapping[str, str], clock_endpoint: str | None, place: Place
    ) -> None:
        """Open them all, or none; log and before are those of `plan`, the other parameters those of `Player`."""
        self.by_name: dict[str, Outlet] = {}
        self.unplayed: Counter[str] = Counter()
        self.closed = False
        wanted, self.skipped = plan(log, before, remap)
        if clock_endpoint in wanted:
            raise InvalidValueError("the clock's endpoint is one that is played; give another one", str(clock_endpoint))
        former = {new: old for old, new in remap.items()}
        servers: dict[str, VisionIpcServer] = {}
        with ExitStack() as stack:
            stack.callback(self.close)
            for name, one in wanted.items():
                try:
                    self.by_name[name] = open_outlet(one, place, servers)
                except UnplayableError as error:
                    self.skipped[former.get(name, name)] = str(error)
            if not self.by_name:
                reasons = "; ".join(f"{name!r}: {why}" for name, why in self.skipped.items())
                raise RecordingError(f"there is nothing to play: {reasons}")
            if clock_endpoint is not None:
                clock = Wanted(clock_endpoint, schema=_CLOCK_SCHEMA, largest=8)
                self.by_name[clock_endpoint] = open_outlet(clock, place, servers)
            stack.pop_all()

    def send(self, message: Played) -> bool:
        """Send a message; tell whether it was. False: its endpoint is skipped, or it is counted in `unplayed`."""
        outlet = self.by_name.get(message.endpoint)
        if outlet is None:
            return False
        try:
            outlet.send(message)
        except UnplayableError as error:
            self.unplayed[f"{message.endpoint}: {error}"] += 1
            return False
        except QueueFullError:
            self.unplayed[f"{message.endpoint}: the queue was full"] += 1
            return False
        return True

    def restore(self, messages: Iterable[Played]) -> None:
        """Let vectors and boards have what these messages, oldest first, leave."""
        by_endpoint: dict[str, list[Played]] = {}
        for message in messages:
            by_endpoint.setdefault(message.endpoint, []).append(message)
        for name, outlet in self.by_name.items():
            outlet.restore(by_endpoint.get(name, ()))

    def close(self) -> None:
        """Close them all. Twice does nothing more."""
        self.closed = True
        for outlet in self.by_name.values():
            outlet.close()
