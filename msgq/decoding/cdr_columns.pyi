"""Messages of CDR and ROS 1 taken apart into columns, below Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Repetitions that may be within each other.
DEPTH: int
#: What a step does; see cdr_columns.h.
FIXED: int
SEQUENCE: int
TEXT: int
REPEAT: int
AGAIN: int

def unpack(
    steps: np.ndarray[Any, np.dtype[np.int64]],
    are_ends: Sequence[bool],
    is_cdr: bool,
    data: np.ndarray[Any, np.dtype[np.uint8]],
    borders: np.ndarray[Any, np.dtype[np.int32]],
) -> tuple[list[np.ndarray[Any, np.dtype[np.uint8]]], np.ndarray[Any, np.dtype[np.bool_]]]:
    """Take messages apart.

    Parameters
    ----------
    steps : of a plan, shape (n, 6): kind, size, count, values, ends, other, valid as `mq_step` in cdr_columns.h
        requires. They are not checked here.
    are_ends : of each column, whether it has ends of elements.
    is_cdr : else the messages are of ROS 1.
    data : the messages, one behind the other.
    borders : shape (messages + 1,), where each one begins, and the last one ends.

    Returns
    -------
    The columns as bytes: numbers in the order of this machine, or ends, int32, with a 0 before them. And of each
    message whether it is none of this plan: it is no plain CDR, ends too early, or has a text that is not UTF-8. Such
    ones have no part in the columns.

    Raises
    ------
    InvalidValueError : no steps, no messages, or borders that are not within the data.

    Notes
    -----
    Releases the GIL; the data must not change meanwhile, or what comes out makes no sense.
    """
