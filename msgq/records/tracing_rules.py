"""Rules of timing records and chains of messages, which live measurements and the lake share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from msgq.common import timing

RowArray = np.ndarray[Any, np.dtype[Any]]
_IntegerArray = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]
TIMING_DTYPE = np.dtype([(name, "<i8") for name in timing.TIMING_FIELDS])


def find_plausible_records(records: RowArray) -> _BoolArray:
    """Return a mask of the plausible records of timing topics."""
    ended, received = records["publish_time"], records["received"]
    plausible: _BoolArray = (
        (received > 0) & (ended >= received) & (records["sent"] >= 0) & (records["origin_time"] >= 0)
    )
    return plausible


def find_wait_begins(records: RowArray) -> _IntegerArray:
    """Return for each timing record when its message began to wait for the stage, ns.

    That is the sending; or the receipt, if the sending is unknown, or is later by another host's clock.
    """
    sent, received = records["sent"].astype(np.int64), records["received"].astype(np.int64)
    return np.where((sent > 0) & (sent < received), sent, received)


def find_parents(is_first: _BoolArray, endpoint: _IntegerArray) -> _IntegerArray:
    """Return the index of each message's parent; -1: none.

    The parent of a message is the previous message of another endpoint in its chain. Consecutive messages of one
    endpoint have one parent: the message before the first of them.

    Args:
        is_first: mask of the first messages of chains. Messages are sorted by chain, publish time and endpoint name.
        endpoint: number of each message's endpoint.
    """
    is_turn = is_first | (np.diff(endpoint, prepend=-1) != 0)
    first = np.maximum.accumulate(np.where(is_turn, np.arange(len(endpoint)), 0))
    return np.where(is_first[first], -1, first - 1)
