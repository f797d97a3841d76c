"""The answers that a reader of the page wants first: is msgq faster than its peers, where is it slower, and why."""

from collections.abc import Iterable

from tools.bench import report
from tools.bench.adapters import FLOOR, OURS, SYSTEMS
from tools.bench.result import Result
from tools.bench.summary import Row, summarize, summarize_table

SAME = 0.05  # A smaller difference is shown as "same": medians differ by as much from run to run.
# Rows of the summary: for each kind the price of a message, the delivery to a busy and to a sleeping process, the
# throughput of small or large messages, and the opening.
SUMMARY = {
    "topics": ("send_0", "pair", "ping", "ping_asleep", "stream_64", "stream_1m", "open"),
    "channels": ("channel_send_1", "channel_ping", "channel_ping_asleep", "channel_views_1m", "channel_open"),
    "queues": ("queue_pair_0", "queue_ping", "queue_ping_asleep", "queue_stream_128", "queue_open"),
    "records": ("write_seqlock", "read_seqlock", "seen_seqlock", "asleep_seqlock", "record_open"),
    "bus": ("bus_poll", "bus_services", "bus_fan_out"),
    "frames": ("frame_1080p", "frame_ping", "frame_asleep", "frame_stream"),
}
_COPIES = "topics copy each message, and the peers give views. Channels give views, too"
_OPENS = "opening checks the owner, mode and layout of each file, and takes a kernel lock that detects dead processes"
_ALIGNED = (
    "pictures start at a page, as clients of stock msgq require, so the bytes that are read share few sets of the cache"
)
_SHARES = (
    "msgq publishes the burst faster than subscribers receive, and the capacity is smaller than the burst. With "
    "`wait_for_room`, subscribers receive all messages (`channel_room_64`)"
)
_WRITERS = "several processes may write a value, so a write takes atomic exchanges. A peer's value has one writer"
_SLEEPS = (
    "the slowest deliveries wait for a core: in a test with msgq and kickmsg, 98 % or more of the time of the slowest "
    "1 % of deliveries, in both systems. The 99th percentile comes from 170 deliveries, and differs more between runs"
)
_BLOCKS = (
    "a receive compares a word of each block of 64 slots, because a message of a higher priority may have arrived in "
    "any block: 23,400 instructions for each pair, and 4,900 with 1,024 waiting (cachegrind)"
)
_ROWS = (
    "in this run, one read in 256 allocated the memory of the next 256 values, and the new memory caused page faults. "
    "Now, values that a program no longer keeps leave their memory to the next values"
)
_MASTERS = "a SubMaster also checks the rates and the ages of its services. The peers only run the loop"
_THREADS = "a thread waits for the memory and wakes the loop, because no descriptor of Linux reports a change of memory"
_WORKERS = "not known. Measured: a worker executes 4,900 instructions outside of the kernel for a message (callgrind)"
_FRAMES = (
    "not known. Excluded: system calls, which are the same as for a message of 64 bytes (strace), and instructions: "
    "3,900 for publish and receive, and 5,100 with kickmsg (callgrind)"
)
#: Reasons that a measurement has shown. Other rows have the reason "unknown".
REASONS = {
    **dict.fromkeys(("in_place_64k", "in_place_1m"), _COPIES),
    **dict.fromkeys(
        ("open", "open_prefix", "open_fresh", "channel_open", "queue_open", "record_open", "board_open"), _OPENS
    ),
    **dict.fromkeys(("frame_stream", "frame_stream_4k"), _ALIGNED),
    **dict.fromkeys(("channel_flood_64", "channel_flood_256"), _SHARES),
    **dict.fromkeys(("channel_ping_asleep", "asleep_seqlock"), _SLEEPS),
    **dict.fromkeys(("seen_seqlock", "seen_seqlock_5"), _ROWS),
    "queue_pair_65528": _BLOCKS,
    "frame_asleep": _FRAMES,
    "bus_services": _MASTERS,
    **dict.fromkeys(("bus_poll_asyncio", "bus_fan_out_asyncio"), _THREADS),
    "queue_bus": _WORKERS,
    **dict.fromkeys(("write_seqlock", "write_seqlock_5", "write_shared", "write_number_f8"), _WRITERS),
}


def format_summary(result: Result) -> str:
    """Return the most important rows of each kind, and the number of rows in which a peer is faster."""
    rows = {row.case.key: row for row in summarize(result)}
    lines = [
        [table, row.case.title, report.format_figure_of(result, row, OURS), *_compare(result, row)]
        for table, keys in SUMMARY.items()
        for row in (rows[key] for key in keys if key in rows)
    ]
    head = ["kind", "work", OURS, "best peer", f"{OURS} compared with the best peer", f"{OURS} compared with the floor"]
    return f"{report.format_table(head, lines)}\n\n{_count_rows(rows.values())}"


def format_factor(row: Row, ratio: float | None) -> str:
    """Return a ratio of msgq to another system in words, for example ``3.7x faster``; ``-`` for None."""
    if not ratio:
        return report.NOTHING
    factor = ratio if row.case.more_is_better else 1 / ratio
    if 1 - SAME <= factor <= 1 + SAME:
        return "same"
    better, worse = ("more", "less") if row.case.unit == "percent" else ("faster", "slower")
    times, word = (factor, better) if factor > 1 else (1 / factor, worse)
    digits = 0 if times >= 10 else 1 if times >= 1.1 else 2
    return f"{times:,.{digits}f}x {word}"


def list_slower(result: Result) -> str:
    """Return all rows in which a peer is faster, at the median or at the 99th percentile, with the known reasons."""
    lines = []
    peers = [system for system in SYSTEMS if system not in (OURS, FLOOR)]
    rows = [(table, row) for table in result.tables for row in summarize_table(result, table)]
    for table, row in rows:
        medians = {peer: format_factor(row, row.beside(peer)) for peer in peers}
        tails = {peer: format_factor(row, row.tail_ratio(peer, 0.99)) for peer in peers}
        slower = [_join_slower(factors) for factors in (medians, tails)]
        if slower != [report.NOTHING] * 2:
            lines.append([f"`{row.case.key}`", table, row.case.title, *slower, REASONS.get(row.case.key, "unknown")])
    if not lines:
        return "In this run, no peer was faster in any row."
    return report.format_table(["row", "table", "work", f"{OURS}, median", f"{OURS}, p99", "reason"], lines)


def _compare(result: Result, row: Row) -> list[str]:
    """Return the figure and the name of the best peer, and msgq compared with this peer and with the floor."""
    return [
        report.format_best_peer(result, row),
        *(format_factor(row, row.beside(system)) for system in ("peer", FLOOR)),
    ]


def _count_rows(rows: Iterable[Row]) -> str:
    """Return a sentence with the numbers of rows in which msgq is faster, the same or slower."""
    factors = [format_factor(row, row.beside("peer")) for row in rows]
    better = sum(factor.endswith(("faster", "more")) for factor in factors)
    worse = sum(factor.endswith(("slower", "less")) for factor in factors)
    same = factors.count("same")
    return (
        f"Compared with the best peer of each row, msgq is faster in {better} of {better + same + worse} rows, the same"
        f" (within {SAME * 100:.0f} %) in {same} rows, and slower in {worse} rows."
    )


def _join_slower(factors: dict[str, str]) -> str:
    found = [f"{factor} than {peer}" for peer, factor in factors.items() if factor.endswith(("slower", "less"))]
    return ", ".join(found) or report.NOTHING
