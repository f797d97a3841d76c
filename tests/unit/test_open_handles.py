"""The handles that close at exit."""

import weakref

import msgq
from tests.support import find_dicts


def count_int_dicts(reference: object) -> int:
    """Return the number of dicts with numbers as keys that hold the weak reference."""
    holders = [each for each in find_dicts() if any(value is reference for value in each.values())]
    return sum(all(type(key) is int for key in each) for each in holders)


def test_dropped_handle_is_forgotten(endpoint: str) -> None:
    """A program that opens many short-lived handles must not use more and more memory."""
    sub = msgq.sub_sock(endpoint)
    (reference,) = weakref.getweakrefs(sub)
    assert count_int_dicts(reference) == 1
    del sub
    assert reference() is None
    assert count_int_dicts(reference) == 0
