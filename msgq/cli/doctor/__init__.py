"""`msgq doctor`: checks the machine, tries a round trip, and looks for the dead."""

import os
import sys
from collections.abc import Iterator, Sequence

import click

import msgq
from msgq import channel_remains, naming, queue_remains, record_remains, remains
from msgq.cli.common import options
from msgq.cli.common.render import console, echo_json, in_bytes, styled
from msgq.cli.doctor.machine import CHECKS, Check
from msgq.errors import MsgqError
from msgq.impl.ground import clock
from msgq.impl.ring.topic import unlink_topic
from msgq.stats import channels, queues, records, topics

_EPILOG = (
    "Exit codes: 0 nothing is wrong (notes are no fault); 1 something is wrong, in the lines marked so; 2 wrong usage."
)
_COLOURS = {"ok": "green", "note": "yellow", "wrong": "red"}


@click.command(epilog=_EPILOG)
@click.option("--fix", is_flag=True, help="First remove what only the dead left. The rest stays.")
@options.as_json
@options.prefix
def command(fix: bool, as_json: bool, prefix: str | None) -> None:
    """Check that msgq works on this machine, and look for participants that died.

    A line per check: "ok", "note" (works, but slower or with little room), or "wrong". --fix removes side segments that
    lost their ring, topics and channels that only the dead use, each under its lock, and pools of channels that lead
    nowhere; it brings messages back that the dead had taken from queues, and removes no queue. It says what it did.
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
    where = naming.checked_prefix(prefix)
    if fix:
        yield repair(where)
    yield from (check() for check in CHECKS)
    yield stamps()
    yield round_trip()
    for look in (segments, files, participants, channel_state, queue_state, record_state, left_behind):
        yield look(where)


def stamps() -> Check:
    """See whether times of this process can be compared with those of all others."""
    trouble = clock.trouble()
    if trouble:
        return Check("clock", "note", f"times of different users may differ: {trouble}")
    apart_s = (clock.wall_offset_ns() - clock.offset_ns()) / 1e9
    return Check("clock", "ok", f"one for all processes; the wall clock was set by {apart_s:+.3f} s since it began")


def round_trip() -> Check:
    """Send one message to ourselves, in a topic that is gone afterwards."""
    endpoint = f"doctor-{os.getpid()}"
    try:
        with msgq.sub_sock(endpoint, timeout=1000) as subscriber, msgq.pub_sock(endpoint) as publisher:
            publisher.send(b"ping")
            arrived = subscriber.receive() == b"ping"
    except MsgqError as error:
        return Check("round trip", "wrong", str(error))
    finally:
        unlink_topic(endpoint)
    if not arrived:
        return Check("round trip", "wrong", "a message that was sent did not arrive within 1 s")
    return Check("round trip", "ok", "a message was sent and received")


def segments(prefix: str) -> Check:
    """Look for files in the place of a topic that are damaged (wrong), or that this user cannot read (a note)."""
    kept = queue_remains.QUEUES.unreadable(prefix) + record_remains.RECORDS.unreadable(prefix)
    every = remains.unreadable(prefix) + channel_remains.unreadable(prefix) + kept
    flaws = sorted(every, key=lambda flaw: not flaw.wrong)
    return _judged("segments", flaws, "every one can be read")


def files(prefix: str) -> Check:
    """Look for side segments without a ring, and for files with an owner or a mode that they should not have."""
    lost = [f"{endpoint} has a side segment, but no ring (--fix removes it)" for endpoint in remains.orphans(prefix)]
    flaws = [remains.Flaw(text, wrong=True) for text in lost] + remains.strangers(prefix) + _elsewhere(prefix)
    return _judged("files", flaws, "every one belongs where it is, to whom it should")


def _judged(check: str, flaws: Sequence[remains.Flaw], good: str) -> Check:
    if not flaws:
        return Check(check, "ok", good)
    return Check(check, "wrong" if any(flaw.wrong for flaw in flaws) else "note", "; ".join(one.text for one in flaws))


def _elsewhere(prefix: str) -> list[remains.Flaw]:
    """Say what prefixes have of side segments without a ring, if none is in force. It holds nobody up: a note."""
    prefixes = [] if prefix else remains.orphaned_prefixes()
    if not prefixes:
        return []
    left = [one for where in prefixes for one in remains.clear_orphans(where, remove=False) if one.endpoint]
    size = in_bytes(sum(one.bytes for one in left))
    text = f"{len(prefixes)} prefixes that ended left {len(left)} side segments without a ring, {size}"
    return [remains.Flaw(f"{text} (`msgq clean` removes them)", wrong=False)]


def participants(prefix: str) -> Check:
    """Look for publishers and subscribers that died and are still entered in a topic."""
    everywhere = topics(prefix)
    dead = [f"{one.endpoint}: {role} {who}" for one in everywhere for role, who in remains.dead(one)]
    if not dead:
        return Check("participants", "ok", f"{len(everywhere)} topics, nobody dead in them")
    text = f"{'; '.join(dead)}. The next to start takes their places; --fix removes topics that only the dead use"
    return Check("participants", "wrong", text)


def channel_state(prefix: str) -> Check:
    """Look at channels: full rows (wrong: nobody can join), the dead and what they left, views that are kept long."""
    found = channels(prefix)
    every = [flaw for one in found for flaw in channel_remains.ailments(one)] + channel_remains.lost(prefix)
    flaws = sorted(every, key=lambda flaw: not flaw.wrong)
    return _judged("channels", flaws, f"{len(found)} channels, nobody dead in them, and nothing left behind")


def queue_state(prefix: str) -> Check:
    """Look at work queues: nonsense and full rows (wrong: somebody cannot send or join), and what the dead left."""
    found = queues(prefix)
    flaws = sorted((flaw for one in found for flaw in queue_remains.ailments(one)), key=lambda flaw: not flaw.wrong)
    sizes = f"{len(found)} queues, {in_bytes(sum(one.bytes for one in found))} of {naming.SHARED_MEMORY}"
    return _judged("queues", flaws, f"{sizes}; the dead left nothing in them")


def record_state(prefix: str) -> Check:
    """Look at vectors and boards: full rows (wrong: nobody else can write), and the dead."""
    found = records(prefix)
    flaws = sorted((flaw for one in found for flaw in record_remains.ailments(one)), key=lambda flaw: not flaw.wrong)
    sizes = f"{len(found)} vectors and boards, {in_bytes(sum(one.bytes for one in found))} of {naming.SHARED_MEMORY}"
    return _judged("records", flaws, f"{sizes}; nobody dead in them")


def left_behind(prefix: str) -> Check:
    """Look for what killed controllers and ZMQ publishers left; it holds nobody up, so it is a note."""
    dead = [*remains.clear_gates(prefix, remove=False), *remains.clear_claims(prefix, remove=False)]
    if not dead:
        return Check("remains", "ok", "no gates or ZMQ claims of the dead")
    text = "; ".join(f"{one.endpoint}: {one.reason}" for one in dead)
    return Check("remains", "note", f"{text}. `msgq clean` removes them")


def repair(prefix: str) -> Check:
    """Remove what only the dead left, put queues right, and say what was done, and what could not be."""
    removals = [*remains.repair(prefix), *channel_remains.repair(prefix)]
    done, failed = queue_remains.repair(prefix)
    done += [f"removed {one.endpoint}: {one.reason}" for one in removals if one.removed and one.endpoint]
    failed += [one.reason for one in removals if not one.removed]
    text = "; ".join(done + failed) or "nothing to repair"
    return Check("repair", "wrong" if failed else "ok", text)
