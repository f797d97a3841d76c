"""Losses without a gap in the sequences: before the first message, after the last message, or without any message.

The metadata of a channel stores these losses, together with the sequence of the message next to them. A reader counts
a loss only if this message is the first or last one that it reads. Losses in other parts of the recording therefore do
not count. Losses of an endpoint without messages belong to the beginning of a recording.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgq.recording.mcap_io.metadata_keys import (
    FIRST_SEQUENCE_KEY,
    LAST_SEQUENCE_KEY,
    LOST_AFTER_KEY,
    LOST_BEFORE_KEY,
    UNKNOWN_LOSSES,
    UNRECORDED_KEY,
)

LOST_MESSAGES_MAX = 1 << 62
_SEQUENCE_NUMBER_COUNT = 1 << 32  # a sequence has 32 bits


class BoundaryLoss(NamedTuple):
    """Messages lost next to a message. `lost` is their number; None: unknown."""

    sequence: int
    lost_messages: int | None


class BoundaryLosses(NamedTuple):
    """Losses that a channel stores. None and 0: no loss.

    `unrecorded` counts all losses of an endpoint without messages.
    """

    loss_before: BoundaryLoss | None = None
    loss_after: BoundaryLoss | None = None
    unrecorded_messages: int = 0

    @property
    def losses_at_ends(self) -> tuple[BoundaryLoss | None, BoundaryLoss | None]:
        """Return the losses before and after messages."""
        return self.loss_before, self.loss_after

    def build_metadata(self) -> dict[str, str]:
        """Return these losses as metadata of a channel."""
        metadata = _format_boundary_loss(self.loss_before, FIRST_SEQUENCE_KEY, LOST_BEFORE_KEY) | _format_boundary_loss(
            self.loss_after, LAST_SEQUENCE_KEY, LOST_AFTER_KEY
        )
        return metadata | ({UNRECORDED_KEY: str(self.unrecorded_messages)} if self.unrecorded_messages else {})


NO_BOUNDARY_LOSSES = BoundaryLosses()


def parse_boundary_losses(metadata: Mapping[str, str]) -> BoundaryLosses:
    """Return the losses in the metadata of a channel. Impossible values count as none."""
    return BoundaryLosses(
        _parse_boundary_loss(metadata.get(FIRST_SEQUENCE_KEY), metadata.get(LOST_BEFORE_KEY)),
        _parse_boundary_loss(metadata.get(LAST_SEQUENCE_KEY), metadata.get(LOST_AFTER_KEY)),
        _parse_bounded_number(metadata.get(UNRECORDED_KEY), LOST_MESSAGES_MAX) or 0,
    )


def count_boundary_losses(stated: Iterable[BoundaryLosses], first: int, last: int) -> int | None:
    """Return the losses of a numbering before its first and after its last message; None: unknown.

    Args:
        stated: losses that the channels of the numbering store.
        first: low 32 bits of the sequence of its first message.
        last: low 32 bits of the sequence of its last message.
    """
    every = list(stated)
    before = {
        losses.loss_before.lost_messages
        for losses in every
        if losses.loss_before is not None and losses.loss_before.sequence == first
    }
    after = {
        losses.loss_after.lost_messages
        for losses in every
        if losses.loss_after is not None and losses.loss_after.sequence == last
    }
    if None in before | after:
        return None
    return sum(lost or 0 for lost in (*before, *after))


def _format_boundary_loss(hidden: BoundaryLoss | None, sequence: str, lost: str) -> dict[str, str]:
    if hidden is None:
        return {}
    return {
        sequence: str(hidden.sequence),
        lost: UNKNOWN_LOSSES if hidden.lost_messages is None else str(hidden.lost_messages),
    }


def _parse_boundary_loss(sequence: str | None, lost: str | None) -> BoundaryLoss | None:
    number = _parse_bounded_number(sequence, _SEQUENCE_NUMBER_COUNT)
    if number is None or lost is None:
        return None
    count = _parse_bounded_number(lost, LOST_MESSAGES_MAX)
    return None if count is None and lost != UNKNOWN_LOSSES else BoundaryLoss(number, count)


def _parse_bounded_number(text: str | None, bound: int) -> int | None:
    """Parse a decimal number below a bound; None if the text is not one."""
    if text is None or not (text.isascii() and text.isdigit() and len(text) < 20):
        return None
    return number if (number := int(text)) < bound else None
