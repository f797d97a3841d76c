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

If a kind lacks a part, the generic code skips its endpoints, or refuses them with a text that names the kind. Functions
of parts take *bare names* (without the name prefix of the kind) and prefixes as `settings.resolve_prefix` returns them
("" for none). These functions raise errors of `msgq.errors`: if the endpoint does not exist, `SegmentError` with errno
ENOENT. Any thread may call these functions. One thread at a time may use a returned object.

The fields of `Kind` and of the parts contain what each kind defines. Their methods and class attributes have defaults,
because few kinds differ: such a kind derives its own class, and overrides only the difference.

Generic code never asks which kind an endpoint has: it calls the part of `kind_of(endpoint)`. A new kind is a folder and
a call of `register_kind`, or an entry in `_BUILT_IN_PACKAGES`. A kind of another distribution is an entry point of the
group "msgq.kinds", whose object is the `Kind` (docs/guides/plugins.md).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from msgq.common.plugins import Plugin, find_plugins, is_importing
from msgq.errors import InvalidValueError, PluginError
from msgq.impl.base.argument_checks import warn_program

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
    """Subject of an auxiliary endpoint. Commands skip auxiliary endpoints unless the user selects them.

    Attributes:
        noun: plural noun for the auxiliary endpoints, for example "timing topics".
        endpoint: endpoint that the auxiliary endpoint reports on; None: no particular endpoint.
    """

    noun: str
    endpoint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of endpoint. Two kinds with the same name are equal.

    Attributes:
        name: name in recordings and JSON: "topic", "channel", "records", "queue", "frames".
        package: folder with the parts of the kind, for example "msgq.channel".
        name_prefix: prefix of endpoint names, for example "channel/". "" for topics, whose names have no "/", and for
            announced kinds.
        plural_name: plural noun for sentences, JSON keys and headings.
        validate_name: takes a bare name as text or bytes; returns it as text, or raises `EndpointNameError`. An
            announced kind validates names in recordings.
        locate_files: takes a prefix; returns the directory of the files, and the prefix of their file names. None: the
            kind has no files, because endpoints of another kind announce it.
        names_senders: True: recordings store the publisher or key of each message. False: recordings store the
            publisher only after a takeover from a living publisher.
        change_header: for a kind that keeps values: NumPy fields at the beginning of a message without a key. `index`
            is the changed element, `count` the number of its changes. (): each message has a key. None: the kind keeps
            no values.
    """

    #: Factor of the latency limit when recordings are checked. Large messages take long to record.
    latency_limit_factor: ClassVar[int] = 1
    #: Way in which `msgq delay` finds the publish time in the announcements of an announced kind.
    delay_hint: ClassVar[str] = ""

    name: str
    package: str
    validate_name: Callable[[str | bytes], str]
    name_prefix: str = ""
    plural_name: str = ""
    locate_files: Callable[[str], tuple[str, str]] | None = None
    names_senders: bool = True
    change_header: tuple[tuple[str, str], ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Kind) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def bare_name(self, endpoint: str) -> str:
        """Return the name of an endpoint without the name prefix of the kind."""
        return endpoint.removeprefix(self.name_prefix)

    def endpoint(self, bare_name: str) -> str:
        """Return a bare name with the name prefix of the kind."""
        return self.name_prefix + bare_name

    @property
    def keeps_values(self) -> bool:
        """True: messages are changes of values. A reader loses nothing if a later change replaces an earlier one."""
        return self.change_header is not None

    def has_part(self, file: str) -> bool:
        """Return True if the kind has a part, for example "bridge": then a bridge can forward its endpoints.

        A plug-in whose part cannot be imported does not have the part, which is a warning. The part is not imported
        again.
        """
        if self.name not in _kind_plugins:
            return find_spec(f"{self.package}.{file}") is not None
        try:
            self._import_part(file)
        except InvalidValueError:  # no such module in the package
            return False
        except PluginError as error:
            warn_program(str(error))
            return False
        return True

    def locate_side_files(self, prefix: str) -> tuple[str, str] | None:
        """Return the same as `locate_files` for the second file of each endpoint; None: no second file."""
        return None

    def find_carrier(self, bare_name: str) -> str:
        """Return the endpoint whose file contains the messages of an endpoint. Usually both are the same."""
        return self.endpoint(bare_name)

    def find_subject(self, endpoint: str) -> ReportedSubject | None:
        """Return the subject of an endpoint of any kind; None: not an auxiliary endpoint of this kind."""
        return None

    def is_announced_by(self, endpoint: str) -> bool:
        """Return True if an endpoint of another kind announces endpoints of this kind."""
        return False

    def is_recorded_as(self, endpoint: str) -> bool:
        """Return True if recordings contain endpoints of this kind under this name, which has another kind's form."""
        return False

    @property
    def stats(self) -> KindStats:
        """Reads and formats statistics."""
        part: KindStats = self._import_part("stats")
        return part

    @property
    def source(self) -> KindSource:
        """Reads messages passively."""
        part: KindSource = self._import_part("source")
        return part

    @property
    def cleanup(self) -> KindCleanup:
        """Finds and removes leftovers of dead processes."""
        part: KindCleanup = self._import_part("cleanup")
        return part

    @property
    def playback(self) -> KindPlayback:
        """Sends recorded messages again."""
        part: KindPlayback = self._import_part("playback")
        return part

    @property
    def simulation(self) -> KindSimulation:
        """Connects endpoints to a simulation."""
        part: KindSimulation = self._import_part("simulation")
        return part

    @property
    def publish(self) -> KindPublish:
        """Publishes messages from the command line."""
        part: KindPublish = self._import_part("publish")
        return part

    @property
    def bridge(self) -> KindBridge:
        """Forwards endpoints across a bridge."""
        part: KindBridge = self._import_part("bridge")
        return part

    def _import_part(self, file: str) -> Any:
        module = f"{self.package}.{file}"
        failure = _part_failures.get((self.name, module))
        if failure is not None:
            raise PluginError(failure)
        try:
            return getattr(import_module(module), file.upper())
        except ModuleNotFoundError as error:
            if error.name != module:
                raise self._explain_import(module, error) from error
            text = f"{self.plural_name} do not support this, because their kind has no part {file!r} ({module})"
            raise InvalidValueError(f"{text}; use an endpoint of another kind") from None
        except Exception as error:  # whatever the code of a plug-in raises
            raise self._explain_import(module, error) from error

    def _explain_import(self, module: str, error: Exception) -> Exception:
        """Return the error of a plug-in's part. Errors of other kinds stay the same."""
        plugin = _kind_plugins.get(self.name)
        if plugin is None:
            return error
        explained = plugin.make_error(f"{module}: {type(error).__name__}: {error}")
        if not is_importing(module):  # otherwise, its own code asks for it
            _part_failures[self.name, module] = str(explained)
        return explained


@dataclass(slots=True)
class _KindLoad:
    """Kinds that a thread has loaded up to now, and the plug-in that it imports; None: no plug-in."""

    kinds: list[Kind]
    plugin: Plugin | None = None


_loaded_kinds: tuple[Kind, ...] = ()  # the library's own kinds and those of plug-ins, stored in one step
_registered_kinds: dict[str, Kind] = {}  # kinds of `register_kind` by name
_kind_plugins: dict[str, Plugin] = {}  # plug-ins by the names of their kinds
_loads_by_thread: dict[int, _KindLoad] = {}  # no thread waits for another one, because a fork would keep a lock locked
_part_failures: dict[tuple[str, str], str] = {}  # errors by kind and module: a failed import is not repeated
_interrupted_plugins: set[Plugin] = set()


def register_kind(kind: Kind) -> None:
    """Add a kind, or replace the kind of the same name.

    The name prefix of the kind must not be the beginning of another kind's prefix.
    """
    _registered_kinds[kind.name] = kind


def _load_kinds() -> tuple[Kind, ...]:
    """Return the library's own kinds, and then those of plug-ins. A broken plug-in is a warning.

    Several threads may load at once, and get the same kinds. A plug-in that asks for the kinds while it is imported
    gets those before it.
    """
    global _loaded_kinds
    thread = threading.get_ident()
    if _loaded_kinds or thread in _loads_by_thread:
        return _loaded_kinds or tuple(_loads_by_thread[thread].kinds)
    load = _KindLoad([import_module(f"{package}.names").KIND for package in _BUILT_IN_PACKAGES])
    _loads_by_thread[thread] = load
    try:
        errors = _load_plugins(load)
    finally:
        del _loads_by_thread[thread]
    if errors is None:
        return tuple(load.kinds)
    if not _loaded_kinds:
        _loaded_kinds = tuple(load.kinds)
        for error in errors:
            warn_program(str(error))
    return _loaded_kinds


def _load_plugins(load: _KindLoad) -> list[PluginError] | None:
    """Add the kinds of plug-ins. Return the errors; None: this thread imports one of the plug-ins just now."""
    errors, is_complete = [], True
    for plugin in find_plugins("msgq.kinds"):
        load.plugin = plugin
        try:
            _add_plugin(plugin, load.kinds)
        except PluginError as error:
            errors.append(error)
            is_complete = is_complete and (plugin in _interrupted_plugins or not plugin.is_importing)
    return errors if is_complete else None


def _add_plugin(plugin: Plugin, loaded_kinds: list[Kind]) -> None:
    if plugin in _interrupted_plugins:
        reason = "another thread imported it when this process was forked"
        raise plugin.make_error(reason, "call msgq.kinds.list_kinds before the fork")
    kind = plugin.load()
    if not isinstance(kind, Kind):
        raise plugin.make_error(f"object is of type {type(kind).__name__}, not msgq.kinds.Kind")
    if kind in loaded_kinds:
        raise plugin.make_error(f"kind {kind.name!r} exists already")
    prefixes = [other_kind.name_prefix for other_kind in loaded_kinds if other_kind.name_prefix]
    overlaps = any(one.startswith(kind.name_prefix) or kind.name_prefix.startswith(one) for one in prefixes)
    if kind.locate_files is not None and overlaps:
        raise plugin.make_error(f"name prefix {kind.name_prefix!r} belongs to another kind")
    if kind.locate_files is not None and not kind.name_prefix.endswith("/"):
        raise plugin.make_error(f"name prefix {kind.name_prefix!r} does not end with '/', so it could begin topics")
    _kind_plugins[kind.name] = plugin
    loaded_kinds.append(kind)


def _forget_loads_of_parent() -> None:
    """In a forked child: never import a plug-in that another thread imported, because Python would wait forever."""
    for thread in _loads_by_thread.keys() - {threading.get_ident()}:
        plugin = _loads_by_thread.pop(thread).plugin
        if plugin is not None and not plugin.is_imported:
            _interrupted_plugins.add(plugin)


os.register_at_fork(after_in_child=_forget_loads_of_parent)


def list_kinds() -> tuple[Kind, ...]:
    """Return all kinds, in the order in which endpoints are listed."""
    loaded = _load_kinds()
    if not _registered_kinds:
        return loaded
    registered = tuple(_registered_kinds.values())
    return tuple(kind for kind in loaded if kind not in registered) + registered


def list_stored_kinds(part: str | None = None) -> tuple[Kind, ...]:
    """Return the kinds that have files and a part, in the order in which endpoints are listed. None: any parts."""
    stored = (kind for kind in list_kinds() if kind.locate_files is not None)
    return tuple(kind for kind in stored if part is None or kind.has_part(part))


def list_state_kinds() -> tuple[str, ...]:
    """Return the names of the kinds that keep values."""
    return tuple(kind.name for kind in list_kinds() if kind.keeps_values)


def list_kinds_without_senders() -> tuple[str, ...]:
    """Return the names of the kinds whose recordings name a publisher only after a takeover."""
    return tuple(kind.name for kind in list_kinds() if not kind.names_senders)


def find_kind(name: str) -> Kind | None:
    """Return the kind with this name; None: this version does not know the kind."""
    return next((kind for kind in list_kinds() if kind.name == name), None)


def get_kind(name: str) -> Kind:
    """Return the kind with this name.

    Raises:
        InvalidValueError: this version does not know the kind.
    """
    kind = find_kind(name)
    if kind is None:
        raise InvalidValueError(f"endpoint kind {name!r} is unknown to this version of msgq")
    return kind


def keeps_values(name: str) -> bool:
    """Return True if the kind is known, and its messages are changes of values (`Kind.keeps_values`)."""
    kind = find_kind(name)
    return kind is not None and kind.keeps_values


def kind_of(endpoint: str) -> Kind:
    """Return the kind that stores an endpoint: the kind with the longest matching name prefix."""
    fitting = [kind for kind in list_stored_kinds() if endpoint.startswith(kind.name_prefix)]
    return max(fitting, key=lambda kind: len(kind.name_prefix))


def find_announced_kind(endpoint: str) -> Kind:
    """Return the kind that an endpoint announces, or its own kind.

    Topics with a certain form of name announce frames.
    """
    return next((kind for kind in list_kinds() if kind.is_announced_by(endpoint)), None) or kind_of(endpoint)


def find_recorded_kind(endpoint: str) -> Kind:
    """Return the kind of a recorded endpoint, if the recording does not store the kind."""
    return next((kind for kind in list_kinds() if kind.is_recorded_as(endpoint)), None) or kind_of(endpoint)


def validate_endpoint(endpoint: str) -> str:
    """Return the name of an endpoint of any kind, with its name prefix.

    Raises:
        EndpointNameError: the name is invalid for its kind.
    """
    kind = kind_of(endpoint)
    return kind.endpoint(kind.validate_name(kind.bare_name(endpoint)))


def find_carrier_endpoint(endpoint: str) -> str:
    """Return the endpoint whose file contains the messages of an endpoint; see `Kind.find_carrier`."""
    kind = kind_of(endpoint)
    return kind.find_carrier(kind.bare_name(endpoint))


def find_reported_subject(endpoint: str) -> ReportedSubject | None:
    """Return the subject of an auxiliary endpoint; None: the endpoint is not auxiliary."""
    subjects = (kind.find_subject(endpoint) for kind in list_kinds())
    return next((subject for subject in subjects if subject is not None), None)
