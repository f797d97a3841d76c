"""Losses that no gap in the numbers shows: before the first message of a numbering, after its last one, and of an
endpoint without any message.

The metadata of a channel state them, with the number of the message next to them. A reader counts them only if that
message is the first or the last one of the numbering in what it reads: so a part of a recording has no losses that
belong to another part. Losses of an endpoint without any message belong to the beginning of a recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgq.recording.mcap_io.metadata_keys import (
    FIRST_SEQUENCE,
    LAST_SEQUENCE,
    LOST_AFTER,
    LOST_BEFORE,
    UNKNOWN,
    UNRECORDED,
)

LOST_MAX = 1 << 62
_SEQUENCE_RANGE = 1 << 32  # a sequence has 32 bits


class BoundaryLoss(NamedTuple):
    """Messages lost next to a message. lost : their number; None: unknown."""

    sequence: int
    lost: int | None


class BoundaryLosses(NamedTuple):
    """What a channel states. None, 0: nothing. unrecorded : all losses of an endpoint without any message."""

    before: BoundaryLoss | None = None
    after: BoundaryLoss | None = None
    unrecorded: int = 0

    @property
    def ends(self) -> tuple[BoundaryLoss | None, BoundaryLoss | None]:
        """Return the losses before and after messages."""
        return self.before, self.after

    def metadata(self) -> dict[str, str]:
        """Return these losses as metadata of a channel."""
        said = _format_loss(self.before, FIRST_SEQUENCE, LOST_BEFORE) | _format_loss(
            self.after, LAST_SEQUENCE, LOST_AFTER
        )
        return said | ({UNRECORDED: str(self.unrecorded)} if self.unrecorded else {})


NO_BOUNDARY_LOSSES = BoundaryLosses()


def parse_boundary_losses(metadata: Mapping[str, str]) -> BoundaryLosses:
    """Return the losses in the metadata of a channel. Impossible values count as none."""
    return BoundaryLosses(
        _parse_loss(metadata.get(FIRST_SEQUENCE), metadata.get(LOST_BEFORE)),
        _parse_loss(metadata.get(LAST_SEQUENCE), metadata.get(LOST_AFTER)),
        _parse_number(metadata.get(UNRECORDED), LOST_MAX) or 0,
    )


def count_boundary_losses(stated: Iterable[BoundaryLosses], first: int, last: int) -> int | None:
    """Return the losses of a numbering that are no gaps; None: unknown.

    Parameters
    ----------
    stated : what the channels of the numbering state.
    first, last : the low 32 bits of the numbers of its first and last message.
    """
    every = list(stated)
    before = {losses.before.lost for losses in every if losses.before is not None and losses.before.sequence == first}
    after = {losses.after.lost for losses in every if losses.after is not None and losses.after.sequence == last}
    if None in before | after:
        return None
    return sum(lost or 0 for lost in (*before, *after))


def _format_loss(hidden: BoundaryLoss | None, sequence: str, lost: str) -> dict[str, str]:
    if hidden is None:
        return {}
    return {sequence: str(hidden.sequence), lost: UNKNOWN if hidden.lost is None else str(hidden.lost)}


def _parse_loss(sequence: str | None, lost: str | None) -> BoundaryLoss | None:
    number = _parse_number(sequence, _SEQUENCE_RANGE)
    if number is None or lost is None:
        return None
    count = _parse_number(lost, LOST_MAX)
    return None if count is None and lost != UNKNOWN else BoundaryLoss(number, count)


def _parse_number(text: str | None, bound: int) -> int | None:
    """Parse a decimal number below a bound; None if the text is not one."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return number if (number := int(text)) < bound else None
