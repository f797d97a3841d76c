"""Dictionaries by topic, and the rates of topics."""

from __future__ import annotations

from _collections_abc import Mapping  # loaded at Python's start, unlike the package `collections`

from msgq.common.choices import list_names
from msgq.common.texts import suggest_name
from msgq.errors import InvalidValueError, UnknownTopicError

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import MappingProxyType
    from typing import Any, TypeVar

    _ValueT = TypeVar("_ValueT")
else:
    from _collections_abc import mappingproxy as MappingProxyType  # the same class, without the module `types`

RATE_MAX_HZ = 1e6  # Hz; a higher rate probably has a wrong unit
EMPTY_MAPPING: Mapping[str, Any] = MappingProxyType({})


class TopicDict(dict[str, "_ValueT"]):
    """Values by topic. An unknown topic raises `UnknownTopicError` with the names of all topics."""

    def __missing__(self, topic: str) -> _ValueT:
        near = suggest_name(topic, self) if isinstance(topic, str) else ""
        text = f"topic not found in this master{near or '; its topics are ' + ', '.join(map(repr, self))}"
        raise UnknownTopicError(text, topic)

    def select_topics(self, topics: str | Iterable[str]) -> list[str]:
        """Return one name, several or none as a list. Raises `UnknownTopicError` for an unknown topic."""
        names = list_names(topics, "topics", may_be_empty=True)
        for name in names:
            self[name]
        return names


def parse_topic_rates(topics: Mapping[str, float | None] | str | Iterable[str]) -> TopicDict[float | None]:
    """Return the topics with their rates in Hz, None for no expected rate. A name or a list of names has no rates.

    Raises:
        InvalidValueError: a rate is below 0, above 1e6, or not a number.
        TypeError: a topic or a rate has a wrong type.
    """
    names = list_names(topics, "topics", may_be_empty=True)
    rates = TopicDict(topics if isinstance(topics, Mapping) else dict.fromkeys(names))
    for name, rate in rates.items():
        check_rate(rate, name)
    return TopicDict((name, rate or None) for name, rate in rates.items())


class TopicErrors:
    """A `with` block whose TypeError gets the name of the topic; a class, because contextlib needs more memory."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, TypeError):
            raise TypeError(f"{self._name!r}: {error}") from error


def check_callables(functions: Mapping[str, object], description: str) -> None:
    """Raise TypeError if a value is neither callable nor None."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name!r}: {description} is {function!r}; give a function or None")


def check_rate(rate: float | None, name: str = "") -> None:
    """Raise InvalidValueError if the value is not a rate."""
    with TopicErrors(name or "frequency"):
        possible = rate is None or 0 <= rate <= RATE_MAX_HZ
    if not possible:
        raise InvalidValueError(f"rate is {rate!r} messages/s; give 0 to {RATE_MAX_HZ:.0f}", name)
