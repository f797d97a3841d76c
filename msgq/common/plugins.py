"""Plug-ins: kinds and verbs that other distributions declare as entry points.

An installed distribution declares its entry points in a file `NAME-VERSION.dist-info/entry_points.txt` on Python's
path. This module reads these files itself: it takes 1.5 ms for 160 distributions, and `importlib.metadata` 40 ms.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from msgq.errors import PluginError

_METADATA_SUFFIXES = (".dist-info", ".egg-info")


class Plugin(NamedTuple):
    """An entry point of an installed distribution.

    Attributes:
        name: name of the entry point.
        target: location of the object: "package.module:object".
        distribution: name and version of the distribution, for example "msgq_blobs 1.0".
    """

    name: str
    target: str
    distribution: str

    def load(self) -> Any:
        """Import the object.

        Raises:
            PluginError: the import failed.
        """
        module, _, path = self.target.partition(":")
        try:
            loaded: Any = import_module(module)
            for attribute in path.split(".") if path else ():
                loaded = getattr(loaded, attribute)
        except (Exception, SystemExit) as error:  # whatever the code of the plug-in raises
            raise self.make_error(f"{type(error).__name__}: {error}") from error
        return loaded

    @property
    def is_importing(self) -> bool:
        """True if a thread imports the object's module just now."""
        return is_importing(self._module_name)

    @property
    def is_imported(self) -> bool:
        """True if the object's module was imported completely."""
        return self._module_name in sys.modules and not self.is_importing

    @property
    def _module_name(self) -> str:
        return self.target.partition(":")[0]

    def make_error(self, reason: str, cure: str = "update or uninstall the distribution") -> PluginError:
        """Return the error of a plug-in that cannot be used."""
        text = f"plug-in {self.name!r} of {self.distribution} ({self.target}) cannot be used: {reason}"
        return PluginError(f"{text}; {cure}")


def is_importing(module_name: str) -> bool:
    """Return True if a thread imports a module just now."""
    # Python's import system has the attribute for the same question, and offers no other way.
    return getattr(getattr(sys.modules.get(module_name), "__spec__", None), "_initializing", False) is True


@cache
def find_plugins(group: str) -> tuple[Plugin, ...]:
    """Return the entry points of a group, for example "msgq.kinds", in the order of Python's path.

    If several distributions use the same name, the first one counts. Nothing is imported.
    """
    found: dict[str, Plugin] = {}
    for distribution, text in _read_entry_points():
        for name, target in _parse_group(text, group):
            found.setdefault(name, Plugin(name, target, distribution))
    return tuple(found.values())


def _read_entry_points() -> Iterator[tuple[str, str]]:
    """Yield the distributions with their entry points as text."""
    for folder in sys.path:
        if not isinstance(folder, str):  # Python ignores them, too
            continue
        try:
            names = sorted(name for name in os.listdir(folder or ".") if name.endswith(_METADATA_SUFFIXES))
        except (OSError, ValueError):  # an archive, a folder that does not exist, or a name that no folder can have
            continue
        for name in names:
            try:
                with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8", errors="replace") as file:
                    text = file.read()
            except OSError:  # most distributions have no entry points
                continue
            project, _, version = name.rpartition(".")[0].partition("-")
            yield f"{project} {version}".strip(), text


def _parse_group(text: str, group_name: str) -> Iterator[tuple[str, str]]:
    group = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == group_name and "=" in line and not line.startswith(("#", ";")):
            name, _, target = line.partition("=")
            yield name.strip(), target.partition("[")[0].strip()  # without the names of extras
