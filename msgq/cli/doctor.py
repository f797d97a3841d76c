"""`msgq doctor`: checks the machine, tries a round trip, and looks for the dead."""

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import click

import msgq
from msgq import naming
from msgq.cli import options
from msgq.cli.machine import CHECKS, Check
from msgq.cli.remains import clear_orphans, dead_claims, dead_gates, orphaned_prefixes, orphans
from msgq.cli.render import console, echo_json, in_bytes, styled, who
from msgq.cli.repair import repair, strangers
from msgq.errors import CorruptSegmentError, EndpointNameError, IpcError, LayoutVersionError, SegmentError
from msgq.impl.segment import unlink_topic
from msgq.stats import TopicStats, topic, topics

_EPILOG = (
    "Exit codes: 0 nothing is wrong (notes are no fault); 1 something is wrong, in the lines marked so; 2 wrong usage."
)
_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


@click.command(epilog=_EPILOG)
@click.option("--fix", is_flag=True, help="First remove what only the dead left. What somebody may use stays.")
@options.as_json
@options.prefix
def command(fix: bool, as_json: bool, prefix: str | None) -> None:
    """Check that msgq works on this machine, and look for participants that died.

    A line per check: "ok", "note" (works, but slower or with little room), or "wrong". --fix removes side segments that
    lost their ring, and topics that only the dead use, each under the topic's lock; it says what it did.
    """
    wrong = False
    output = console()
    for check in _checks(prefix, fix):
        wrong |= check.status == "wrong"
        if as_json:
            echo_json(check)
        else:
            output.print(styled(f"{check.status:5}", _COLOURS[check.status]), f"{check.check:13}", end=" ")
            output.print(check.text, soft_wrap=True)
    sys.exit(wrong)


def _checks(prefix: str | None, fix: bool) -> Iterator[Check]:
    if fix:
        yield repair(prefix)
    yield from (check() for check in CHECKS)
    yield round_trip()
    yield segments(prefix)
    yield files(prefix)
    yield participants(prefix)
    yield remains(prefix)


def round_trip() -> Check:
    """Send one message to ourselves, in a topic that is gone afterwards."""
    endpoint = f"doctor-{os.getpid()}"
    try:
        with msgq.sub_sock(endpoint, timeout=1000) as subscriber, msgq.pub_sock(endpoint) as publisher:
            publisher.send(b"ping")
            arrived = subscriber.receive() == b"ping"
    except IpcError as error:
        return Check("round trip", "wrong", str(error))
    finally:
        unlink_topic(endpoint)
    if not arrived:
        return Check("round trip", "wrong", "a message that was sent did not arrive within 1 s")
    return Check("round trip", "ok", "a message was sent and received")


def segments(prefix: str | None) -> Check:
    """Look for files in the place of a topic that are damaged (wrong), or that this user cannot read (a note)."""
    where = naming.checked_prefix(prefix)
    directory, start = naming.topic_files(where)
    damaged, unreadable = [], []
    for path in sorted(Path(directory).glob(f"{start}?*")):
        if path.is_dir() and not path.is_symlink():
            continue  # the topics of a prefix
        try:
            topic(path.name.removeprefix(start), where)
        except (CorruptSegmentError, LayoutVersionError) as error:
            damaged.append(str(error))
        except EndpointNameError as error:  # its name is no text
            unreadable.append(str(error))
        except SegmentError as error:
            if error.errno != errno.ENOENT:  # removed just now
                unreadable.append(str(error))
    text = "; ".join(damaged + unreadable)
    return Check("segments", "wrong" if damaged else "note" if text else "ok", text or "every one can be read")


def files(prefix: str | None) -> Check:
    """Look for side segments without a ring, and for files with an owner or a mode that they should not have."""
    where = naming.checked_prefix(prefix)
    orphaned = [f"{endpoint} has a side segment, but no ring (--fix removes it)" for endpoint in orphans(where)]
    strange = list(strangers(prefix))
    text = "; ".join(orphaned + [text for text, _ in strange] + _elsewhere(where))
    wrong = orphaned or any(refused for _, refused in strange)
    if not text:
        return Check("files", "ok", "every one belongs where it is, to whom it should")
    return Check("files", "wrong" if wrong else "note", text)


def _elsewhere(where: str) -> list[str]:
    """Say what prefixes have of side segments without a ring, if none is in force. It holds nobody up: a note."""
    prefixes = [] if where else orphaned_prefixes()
    found = [orphan for one in prefixes for orphan in clear_orphans(one, remove=False) if orphan.endpoint]
    if not prefixes:
        return []
    size = in_bytes(sum(orphan.bytes for orphan in found))
    text = f"{len(prefixes)} prefixes that ended left {len(found)} side segments without a ring, {size}"
    return [f"{text} (`msgq clean` removes them)"]


def participants(prefix: str | None) -> Check:
    """Look for publishers and subscribers that died and are still entered in a topic."""
    found = topics(prefix)
    dead = [line for one in found for line in _dead(one)]
    if not dead:
        return Check("participants", "ok", f"{len(found)} topics, nobody dead in them")
    text = (
        f"{'; '.join(dead)}. The next to start takes their places; --fix removes topics that only the dead use"
    )
    return Check("participants", "wrong", text)


def remains(prefix: str | None) -> Check:
    """Look for what killed controllers and ZMQ publishers left; it holds nobody up, so it is a note."""
    where = naming.checked_prefix(prefix)
    found = [f"{one.endpoint}: {one.what}" for one in [*dead_gates(where), *dead_claims(where)]]
    if not found:
        return Check("remains", "ok", "no gates or ZMQ claims of the dead")
    return Check("remains", "note", f"{'; '.join(found)}. `msgq clean` removes them")


def _dead(found: TopicStats) -> list[str]:
    named = [(subscriber.participant, "subscriber") for subscriber in found.subscribers]
    if found.publisher is not None:
        named.append((found.publisher, "publisher"))
    return [f"{found.endpoint}: {role} {who(one)}" for one, role in named if one.alive is False]
