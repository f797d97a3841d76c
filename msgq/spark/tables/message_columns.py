"""Optional columns of messages about their source, with default values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from msgq.common.message_source import TOPIC_SOURCE
from msgq.kinds import list_state_kinds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def make_kind_column(messages: DataFrame) -> Column:
    """Return the kind of each message; "topic" if unknown."""
    return F.coalesce("kind", F.lit(TOPIC_SOURCE.kind)) if "kind" in messages.columns else F.lit(TOPIC_SOURCE.kind)


def make_optional_column(messages: DataFrame, name: str, kind_of_value: str = "string") -> Column:
    """Return an optional column of this type, NULL if messages do not have it."""
    return F.col(name) if name in messages.columns else F.lit(None).cast(kind_of_value)


def select_state_messages(messages: DataFrame) -> DataFrame:
    """Return the messages of records, whose values replace earlier values."""
    return messages.where(make_kind_column(messages).isin(*list_state_kinds()))
