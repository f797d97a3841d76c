"""Names of endpoints for playback."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgq.common.selection import EndpointPattern
from msgq.errors import EndpointNameError, InvalidValueError
from msgq.kinds import find_kind, kind_of

#: New names by those of a log, or by expressions, of whose matches they may say parts ("\\1"); see `EndpointRemapping`.
NameMapping = Mapping[str, str] | Mapping[re.Pattern[str], str] | Mapping[EndpointPattern, str]


class EndpointRemapping:
    """New names of endpoints.

    An endpoint named in `remap` gets exactly the new name. Otherwise, the first expression that matches the name
    replaces the match, like `re.sub`. All other endpoints keep their names. Topics of ROS and others have "/" in their
    names, which is invalid here. In such names, also in results of an expression, "." replaces "/", and "/" at both
    ends is removed: "/camera/front" becomes "camera.front".
    """

    def __init__(self, remap: NameMapping) -> None:
        r"""Set the rules: ``{"gps": "gps_old", re.compile("^/(.*)$"): r"ros/\1"}``."""
        self._exact_names = {old: new for old, new in remap.items() if isinstance(old, str)}
        self._name_patterns = [(old, new) for old, new in remap.items() if not isinstance(old, str)]
        self._computed_names: dict[tuple[str, str], str | None] = {}

    def find_new_name(self, endpoint: str, kind: str) -> str | None:
        """Return the new name of an endpoint; None: not played, because no valid name exists.

        Raises:
            EndpointNameError: the new name is invalid.
            InvalidValueError: the new name has another kind, or an expression lacks the group.
        """
        asked = endpoint, kind
        if asked not in self._computed_names:
            self._computed_names[asked] = self._compute_new_name(endpoint, kind)
        return self._computed_names[asked]

    def _compute_new_name(self, endpoint: str, kind: str) -> str | None:
        if endpoint in self._exact_names:
            return _validate_name(self._exact_names[endpoint], kind, endpoint)
        for pattern, new in self._name_patterns:
            if pattern.search(endpoint):
                return _validate_name(_fit_name(_substitute_name(pattern, new, endpoint), kind), kind, endpoint)
        try:
            return _validate_name(_fit_name(endpoint, kind), kind, endpoint)
        except (EndpointNameError, InvalidValueError):
            return None

    def find_unused_rules(self, endpoints: Iterable[str]) -> list[str]:
        """Return the rules that apply to none of these endpoints."""
        present = set(endpoints)
        missing = sorted(set(self._exact_names) - present)
        return missing + [
            old.pattern for old, _ in self._name_patterns if not any(map(old.search, present - set(self._exact_names)))
        ]


def _substitute_name(pattern: re.Pattern[str], new: str, endpoint: str) -> str:
    try:
        return pattern.sub(new, endpoint, count=1)
    except (re.error, IndexError) as error:
        raise InvalidValueError(f"endpoint {endpoint!r} cannot be remapped to {new!r}: {error}") from None


def _fit_name(name: str, kind_name: str) -> str:
    """Return a name without parts that are invalid for the kind: topics have no "/"."""
    kind = find_kind(kind_name)
    return name if kind is None else kind.playback.make_valid_name(name)


def _validate_name(name: str, kind_name: str, former: str) -> str:
    """Return the name if it is valid for the kind."""
    kind = find_kind(kind_name)
    if kind is None:
        raise InvalidValueError(
            f"endpoint {former!r} has kind {kind_name!r}, which this version of msgq does not support"
        )
    if kind.locate_files is not None and kind != kind_of(name):
        text = f"endpoint {former!r} has kind {kind_name}, and {name!r} has another; use a name of the same kind"
        raise InvalidValueError(f"{text}: {kind.endpoint('NAME')}" if kind.name_prefix else f"{text}, without '/'")
    return kind.endpoint(kind.validate_name(kind.bare_name(name)))
