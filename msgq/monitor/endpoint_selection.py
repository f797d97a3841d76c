"""Selection of existing endpoints of all kinds by names and patterns, and objects for each of them while they exist."""

import errno
import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic, TypeVar

from msgq.common.selection import PATTERN_SIGNS, SelectedEndpoints, parse_patterns
from msgq.errors import MsgqError, SegmentError
from msgq.kinds import find_reported_subject, kind_of, validate_endpoint
from msgq.kinds.snapshots import endpoint_inodes

_T = TypeVar("_T")
_SIMILAR_NAMES_MAX = 5


def is_auxiliary_endpoint(endpoint: str) -> bool:
    """Return True if an endpoint only reports on another one, like the channel of a queue's events."""
    return find_reported_subject(endpoint) is not None


def is_shown_by_subject(endpoint: str, existing: Container[str]) -> bool:
    """Return True if an endpoint only reports on another endpoint that is in `existing`."""
    subject = find_reported_subject(endpoint)
    return subject is not None and subject.endpoint in existing


class EndpointLeftOutError(MsgqError):
    """An endpoint cannot be measured or shown. If the user named it, the command fails. Otherwise it is skipped."""


class NoMatchError(MsgqError):
    """Names and patterns match no endpoint."""


def no_match_error(missing: Iterable[str], existing: Iterable[str]) -> NoMatchError:
    """Return the error for names and patterns without an endpoint, with similar names."""
    texts = sorted(missing)
    similar = find_similar_names(texts, existing)
    hint = f"did you mean {', '.join(similar)}?" if similar else "run `msgq list`"
    return NoMatchError(f"no endpoint matches {', '.join(texts)}; {hint}")


def find_similar_names(texts: Iterable[str], existing: Iterable[str]) -> list[str]:
    """Return existing names that the user could have meant with names or patterns without an endpoint.

    These are endpoints of another kind with the same name, and names with a similar spelling.
    """
    import difflib  # only errors need it

    every, similar = sorted(existing), dict[str, None]()
    for text in texts:
        same = [name for name in every if name != text and kind_of(name).bare_name(name) == text]
        plain = "".join(character for character in text if character not in PATTERN_SIGNS)
        similar |= dict.fromkeys(same or difflib.get_close_matches(plain, every, _SIMILAR_NAMES_MAX))
    return [*similar][:_SIMILAR_NAMES_MAX]


class EndpointSelection:
    """Endpoints selected by names, and by patterns for whole names. Without both: all endpoints of all kinds.

    Args:
        auxiliary: True: include auxiliary endpoints (see `is_auxiliary_endpoint`). False: "all endpoints" excludes
            them, and a pattern excludes events channels of existing queues. A name always selects its endpoint.
        expressions: regular expressions to search for in names.

    Attributes:
        unmatched: names, patterns and expressions that selected no endpoint in any call of `find_existing`.

    Raises:
        InvalidPatternError: a pattern is invalid.
        EndpointNameError: a name is invalid.
    """

    def __init__(
        self,
        texts: Sequence[str],
        prefix: str | None,
        auxiliary: bool = False,
        expressions: Sequence[re.Pattern[str]] = (),
    ) -> None:
        patterns = [
            validate_endpoint(pattern) if isinstance(pattern, str) else pattern for pattern in parse_patterns(texts)
        ]
        self._selection = SelectedEndpoints([*patterns, *expressions] or None)
        self._auxiliary, self._selects_all = auxiliary, not (texts or expressions)
        written = [*texts, *(pattern.pattern for pattern in expressions)]
        self._by_text = {
            text: SelectedEndpoints(pattern) for text, pattern in zip(written, [*patterns, *expressions], strict=True)
        }
        self.unmatched = [*self._by_text]
        self._every: dict[str, int] = {}  # result of the last scan; hints never name an endpoint that came after it
        self.exact_names = self._selection.names
        self.prefix = prefix
        self._text = ", ".join(texts) or "any endpoint"

    def __str__(self) -> str:
        return self._text

    def __contains__(self, name: str) -> bool:
        return name in self._selection and (self._auxiliary or not self._selects_all or not is_auxiliary_endpoint(name))

    def find_existing(self) -> dict[str, int]:
        """Return the selected endpoints that exist, with the inodes of their files.

        The endpoints have the order of `msgq.stats.endpoints`. Files whose names are not valid text are ignored.
        """
        self._every = every = endpoint_inodes(self.prefix)
        selected = {name: inode for name, inode in every.items() if name in self and self._is_listed(name, every)}
        self.unmatched = [text for text in self.unmatched if not any(name in self._by_text[text] for name in selected)]
        return selected

    @property
    def has_patterns(self) -> bool:
        """True if the selection has a pattern or a regular expression, and not only names."""
        return bool(self._selection.expressions)

    def list_pattern_matches(self) -> list[str]:
        """Return the existing endpoints that patterns and regular expressions select now, sorted."""
        patterns = SelectedEndpoints(self._selection.expressions)
        return sorted(name for name in self.find_existing() if name in patterns)

    def find_similar_to_unmatched(self) -> list[str]:
        """Return endpoints that existed at the last call of `find_existing` and are similar to unmatched names."""
        return find_similar_names(self.unmatched, self._every)

    def require_matched(self) -> None:
        """Raise an error for names and patterns that selected no endpoint in any call of `find_existing`.

        Raises:
            NoMatchError: a name or pattern selected no endpoint.
        """
        if self.unmatched:
            raise no_match_error(self.unmatched, self._every)

    def _is_listed(self, name: str, every: Container[str]) -> bool:
        """Return True if an existing, selected endpoint is listed next to the other existing endpoints."""
        is_redundant = not self._auxiliary and name not in self.exact_names and is_shown_by_subject(name, every)
        return not is_redundant and name.encode(errors="ignore").decode() == name


class EndpointFollower(Generic[_T]):
    """Keeps one object for each existing endpoint.

    If the file of an endpoint is replaced, the follower creates a new object.

    Args:
        names: selection of endpoints.
        make: returns the object for an endpoint. An endpoint that cannot be read or shown is skipped, unless the user
            named it.
        report: called once for each skipped endpoint, with the reason.
        skips_named: True: endpoints that the user named are skipped, too, if they cannot be read.

    Attributes:
        by_name: objects by endpoint.
        refused: reasons by endpoint that cannot be read. Each refresh tries these endpoints again.
    """

    def __init__(
        self,
        names: EndpointSelection,
        make: Callable[[str], _T],
        report: Callable[[str], object] | None = None,
        skips_named: bool = False,
    ) -> None:
        self._names, self._make_object, self._report = names, make, report
        self._named = frozenset() if skips_named else frozenset(names.exact_names)
        self.refused: dict[str, str] = {}
        self._inodes: dict[str, int] = {}
        self._left_out: set[str] = set()
        self.by_name: dict[str, _T] = {}

    def refresh(self) -> None:
        """Add new endpoints, and remove missing ones."""
        existing = self._names.find_existing()
        self.refused = {name: reason for name, reason in self.refused.items() if name in existing}
        for name in [name for name, inode in self._inodes.items() if existing.get(name) != inode]:
            del self._inodes[name], self.by_name[name]
        for name, inode in existing.items():
            if name not in self._inodes:
                try:
                    self.by_name[name] = self._make_object(name)
                    self.refused.pop(name, None)
                except SegmentError as error:
                    self._handle_unreadable(name, error)
                except EndpointLeftOutError as error:
                    self._report_left_out(name, error)
                else:
                    self._inodes[name] = inode

    def _handle_unreadable(self, name: str, error: SegmentError) -> None:
        if error.errno == errno.ENOENT:  # it was just removed
            return
        if name in self._named:
            raise error
        self.refused[name] = str(error)

    def _report_left_out(self, name: str, error: EndpointLeftOutError) -> None:
        """Report once why an endpoint is skipped.

        Later refreshes try the endpoint again, because a schema may appear.
        """
        if name in self._named:
            raise error
        if name not in self._left_out:
            self._left_out.add(name)
            if self._report is not None:
                self._report(str(error))
