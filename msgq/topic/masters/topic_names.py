"""Dictionaries by topic, and the rates of topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from msgq.common.selection import list_names
from msgq.common.texts import suggest_name
from msgq.errors import InvalidValueError, UnknownTopicError

RATE_MAX_HZ = 1e6  # Hz; a higher rate probably has a wrong unit
_ValueT = TypeVar("_ValueT")


class TopicDict(dict[str, _ValueT]):
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

    Raises
    ------
    InvalidValueError : a rate is below 0, above 1e6, or not a number.
    TypeError : a topic or a rate has a wrong type.
    """
    names = list_names(topics, "topics", may_be_empty=True)
    rates = TopicDict(topics if isinstance(topics, Mapping) else dict.fromkeys(names))
    for name, rate in rates.items():
        check_rate(rate, name)
    return TopicDict((name, rate or None) for name, rate in rates.items())


@contextmanager
def name_topic_in_errors(name: str) -> Iterator[None]:
    """Add the name of the topic to a TypeError."""
    try:
        yield
    except TypeError as error:
        raise TypeError(f"{name!r}: {error}") from error


def check_callables(functions: Mapping[str, object], description: str) -> None:
    """Raise TypeError if a value is neither callable nor None."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name!r}: {description} is {function!r}; give a function or None")


def check_rate(rate: float | None, name: str = "") -> None:
    """Raise InvalidValueError if the value is not a rate."""
    with name_topic_in_errors(name or "frequency"):
        possible = rate is None or 0 <= rate <= RATE_MAX_HZ
    if not possible:
        raise InvalidValueError(f"rate is {rate!r} messages/s; give 0 to {RATE_MAX_HZ:.0f}", name)
