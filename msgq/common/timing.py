"""Timing topics: a stage publishes a record about each message that it has handled.

A stage is a named part of a program. For each endpoint that it handles, it publishes on the topic
`timing:STAGE:ENDPOINT`. In both names, "%", ":" and "/" are written %25, %3A and %2F.
"""

from __future__ import annotations

import json

from msgq.common.schema import Schema

TIMING_TOPIC_PREFIX = "timing:"
#: Fields of a record, in this order, each 8 bytes, little-endian and signed: ns of the host's clock
#: (docs/internals/clock.md). `received` is when the stage took the message, `publish_time` when it was done with it.
#: `sent` is the message's publish_time, and `origin_time` that of the message that caused it; 0: unknown.
TIMING_FIELDS = ("publish_time", "origin_time", "received", "sent")
TIMING_RECORD_BYTES = 8 * len(TIMING_FIELDS)
TIMING_SCHEMA = Schema("Timing", "struct", json.dumps([[name, "<i8"] for name in TIMING_FIELDS]).encode())
#: Signs of names that have a meaning here, or in names of files, and what is written instead. The first one first.
QUOTED_CHARACTERS = (("%", "%25"), (":", "%3A"), ("/", "%2F"))


def make_timing_topic(stage: str, endpoint: str) -> str:
    """Return the name of a timing topic.

    Args:
        stage: name of the stage.
        endpoint: handled endpoint, with its name prefix, for example `channel/NAME`.
    """
    return f"{TIMING_TOPIC_PREFIX}{_quote_name(stage)}:{_quote_name(endpoint)}"


def parse_timing_topic(topic: str) -> tuple[str, str] | None:
    """Return the stage and the endpoint of a timing topic; None: not a timing topic."""
    stage, colon, endpoint = topic.removeprefix(TIMING_TOPIC_PREFIX).partition(":")
    if not topic.startswith(TIMING_TOPIC_PREFIX) or not colon or ":" in endpoint:
        return None
    return _unquote_name(stage), _unquote_name(endpoint)


def _quote_name(name: str) -> str:
    for sign, written in QUOTED_CHARACTERS:
        name = name.replace(sign, written)
    return name


def _unquote_name(name: str) -> str:
    for sign, written in reversed(QUOTED_CHARACTERS):
        name = name.replace(written, sign)
    return name
