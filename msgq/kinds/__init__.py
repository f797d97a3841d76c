"""The kinds of endpoints: their list, and the interface by which generic code uses them.

A kind is a folder with files of fixed names. `names.py` defines its `Kind`, which names the folder. Each other file
defines one *part*: an object of a fixed name and type, which is imported when it is first used.

| file | object | type | used by |
|---|---|---|---|
| names.py | KIND | `Kind` | everything that takes names of endpoints |
| stats.py | STATS | `msgq.kinds.stats.KindStats` | msgq.stats, list, info, top, stat, check, doctor |
| source.py | SOURCE | `msgq.kinds.source.KindSource` | recorder, echo, hz, bw, delay, check |
| playback.py | PLAYBACK | `msgq.kinds.playback.KindPlayback` | player, comparison, simulation |
| publish.py | PUBLISH | `msgq.kinds.publish.KindPublish` | pub |
| cleanup.py | CLEANUP | `msgq.kinds.cleanup.KindCleanup` | clean, doctor |
| simulation.py | SIMULATION | `msgq.kinds.simulation.KindSimulation` | simulation |
| bridge.py | BRIDGE | `msgq.kinds.bridge.KindBridge` | bridge |

A kind may lack a part; the generic code then leaves out its endpoints, or refuses them with a text that names the kind.
Functions of parts take *bare names* (without the name prefix of the kind) and prefixes as `settings.resolve_prefix`
returns them ("" for none). They raise errors of `msgq.errors`: `SegmentError` with errno ENOENT if there is no such
endpoint. Any thread may call them; an object that they return belongs to one thread at a time.

Generic code never asks which kind an endpoint has: it calls the part of `kind_of(endpoint)`. A new kind is a folder and
a call of `register_kind`, or an entry in `_BUILT_IN_PACKAGES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from msgq.kinds.bridge import KindBridge
    from msgq.kinds.cleanup import KindCleanup
    from msgq.kinds.playback import KindPlayback
    from msgq.kinds.publish import KindPublish
    from msgq.kinds.simulation import KindSimulation
    from msgq.kinds.source import KindSource
    from msgq.kinds.stats import KindStats

#: The folders of the library's own kinds, in the order in which endpoints are listed.
_BUILT_IN_PACKAGES = ("msgq.topic", "msgq.channel", "msgq.records", "msgq.workqueue", "visionipc")


class ReportedSubject(NamedTuple):
    """What an auxiliary endpoint reports on. Verbs leave auxiliary endpoints out unless they are selected.

    Attributes
    ----------
    noun : the auxiliary endpoints in the plural, as "timing topics".
    endpoint : the endpoint that it reports on; None: none in particular.
    """

    noun: str
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of endpoint. Two kinds with one name are the same kind.

    Attributes
    ----------
    name : as recordings and JSON say it: "topic", "channel", "records", "queue", "frames".
    package : the folder with its parts, as "msgq.channel".
    name_prefix : the beginning of its endpoints' names, as "channel/"; "" of topics, whose names have no "/", and of
        kinds that are announced.
    plural_name, column_heading : endpoints of it in sentences and as a JSON key; the same as the title of a narrow
        column.
    validate_name : takes a bare name as text or bytes, and returns it as text; raises `EndpointNameError` for one that
        cannot be a name.
    locate_files : takes a prefix; returns the directory that holds its files, and the beginning of their names. None:
        it has no files of its own, endpoints of another kind announce it.
    locate_side_files : the same of a second file of each endpoint; None: there is none.
    keeps_values : its messages are changes of values, each of which replaces one before; a reader that misses some has
        lost nothing.
    change_header : of a kind that keeps values: the NumPy fields at the beginning of a message without a key. `index`
        is the element that changed, `count` the number of its changes. (): each of its messages has a key.
    names_senders : recordings say the publisher or key of its messages.
    crosses_bridges : a bridge can carry its endpoints; the kind has the part `bridge`.
    announcer_name_regex, recorded_name_regex : expressions for whole names: of the endpoints of another kind that
        announce this one, and of its own endpoints in recordings. None: there are none, or all names with its prefix.
    find_carrier : takes a bare name; returns the endpoint from whose file its messages are read. None: its own.
    find_subject : takes the name of any endpoint; returns what it reports on if it is one of this kind's auxiliary
        endpoints, else None.
    delay_hint : of an announced kind: how `msgq delay` finds the publish time in the announcements.
    """

    name: str
    package: str
    validate_name: Callable[[str | bytes], str]
    name_prefix: str = ""
    plural_name: str = ""
    column_heading: str = ""
    locate_files: Callable[[str], tuple[str, str]] | None = None
    locate_side_files: Callable[[str], tuple[str, str]] | None = None
    keeps_values: bool = False
    change_header: tuple[tuple[str, str], ...] = ()
    names_senders: bool = True
    crosses_bridges: bool = False
    announcer_name_regex: re.Pattern[str] | None = None
    recorded_name_regex: re.Pattern[str] | None = None
    find_carrier: Callable[[str], str] | None = None
    find_subject: Callable[[str], ReportedSubject | None] | None = None
    delay_hint: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def bare_name(self, endpoint: str) -> str:
        """Return the name of one of its endpoints without the name prefix."""
        return endpoint.removeprefix(self.name_prefix)

    def endpoint(self, bare_name: str) -> str:
        """Return the name of one of its endpoints with the name prefix."""
        return self.name_prefix + bare_name

    @property
    def stats(self) -> KindStats:
        """How its statistics are read and shown."""
        part: KindStats = self._import_part("stats")
        return part

    @property
    def source(self) -> KindSource:
        """How its messages are read without a trace."""
        part: KindSource = self._import_part("source")
        return part

    @property
    def cleanup(self) -> KindCleanup:
        """What dead processes leave, and its removal."""
        part: KindCleanup = self._import_part("cleanup")
        return part

    @property
    def playback(self) -> KindPlayback:
        """How recorded messages are sent again."""
        part: KindPlayback = self._import_part("playback")
        return part

    @property
    def simulation(self) -> KindSimulation:
        """How its endpoints take part in a simulation."""
        part: KindSimulation = self._import_part("simulation")
        return part

    @property
    def publish(self) -> KindPublish:
        """How messages are published from the command line."""
        part: KindPublish = self._import_part("publish")
        return part

    @property
    def bridge(self) -> KindBridge:
        """How its endpoints cross a bridge, if `crosses_bridges`."""
        part: KindBridge = self._import_part("bridge")
        return part

    def _import_part(self, file: str) -> Any:
        return getattr(import_module(f"{self.package}.{file}"), file.upper())


_registered_kinds: list[Kind] = []


def register_kind(kind: Kind) -> None:
    """Add a kind, or replace the one of the same name. Its name prefix must not be the beginning of another's name."""
    _load_built_in()
    remaining = [known for known in _registered_kinds if known != kind]
    _registered_kinds[:] = [*remaining, kind]


@lru_cache(maxsize=1)
def _load_built_in() -> None:
    _registered_kinds.extend(import_module(f"{package}.names").KIND for package in _BUILT_IN_PACKAGES)


def list_kinds() -> tuple[Kind, ...]:
    """Return every kind, in the order in which endpoints are listed."""
    _load_built_in()
    return tuple(_registered_kinds)


def list_stored_kinds() -> tuple[Kind, ...]:
    """Return the kinds that have files, in the order in which endpoints are listed."""
    return tuple(kind for kind in list_kinds() if kind.locate_files is not None)


def list_state_kinds() -> tuple[str, ...]:
    """Return the names of the kinds that keep values."""
    return tuple(kind.name for kind in list_kinds() if kind.keeps_values)


def find_kind(name: str) -> Kind | None:
    """Return the kind of this name; None: this version does not know it."""
    return next((kind for kind in list_kinds() if kind.name == name), None)


def get_kind(name: str) -> Kind:
    """Return the kind of this name.

    Raises
    ------
    InvalidValueError : this version does not know it.
    """
    kind = find_kind(name)
    if kind is None:
        raise InvalidValueError(f"endpoint kind {name!r} is unknown to this version of msgq")
    return kind


def keeps_values(name: str) -> bool:
    """Return whether a kind is known, and its messages are changes of values (`Kind.keeps_values`)."""
    kind = find_kind(name)
    return kind is not None and kind.keeps_values


def kind_of(endpoint: str) -> Kind:
    """Return the kind that stores an endpoint of this name: the longest name prefix that fits decides."""
    fitting = [kind for kind in list_stored_kinds() if endpoint.startswith(kind.name_prefix)]
    return max(fitting, key=lambda kind: len(kind.name_prefix))


def find_announced_kind(endpoint: str) -> Kind:
    """Return the kind that an endpoint announces, or else its own: topics of a fixed form announce frames."""
    announced = (
        kind for kind in list_kinds() if kind.announcer_name_regex and kind.announcer_name_regex.fullmatch(endpoint)
    )
    return next(announced, None) or kind_of(endpoint)


def find_recorded_kind(endpoint: str) -> Kind:
    """Return the kind of an endpoint of a recording that does not say the kind."""
    recorded = (
        kind for kind in list_kinds() if kind.recorded_name_regex and kind.recorded_name_regex.fullmatch(endpoint)
    )
    return next(recorded, None) or kind_of(endpoint)


def validate_endpoint(endpoint: str) -> str:
    """Return the name of an endpoint of any kind, with its name prefix.

    Raises
    ------
    EndpointNameError : no endpoint can have this name.
    """
    kind = kind_of(endpoint)
    return kind.endpoint(kind.validate_name(kind.bare_name(endpoint)))


def find_carrier_endpoint(endpoint: str) -> str:
    """Return the endpoint from whose file the messages of an endpoint are read, mostly itself."""
    kind = kind_of(endpoint)
    return endpoint if kind.find_carrier is None else kind.find_carrier(kind.bare_name(endpoint))


def find_reported_subject(endpoint: str) -> ReportedSubject | None:
    """Return what an auxiliary endpoint reports on; None: it is not an auxiliary one."""
    subjects = (kind.find_subject(endpoint) for kind in list_kinds() if kind.find_subject is not None)
    return next((subject for subject in subjects if subject is not None), None)
