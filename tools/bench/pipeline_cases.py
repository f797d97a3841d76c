"""The rows of the table of the pipeline on Spark: recordings of 20 topics, none of whose messages is like another."""

from dataclasses import replace

from tools.bench.cases import Case, Target

_MESSAGES = 5_000_000
_MEMORY_BYTES = 4 << 30
_FOLLOWED_S = 20.0
_ONE = Case("", "", "cpu", "", size=0, messages=_MESSAGES, slices=5, repeats=1, limit_s=3600)


def _row(key: str, title: str, function: str = "", **changes: object) -> Case:
    """Return a row. `function`: of `works.pipeline`; "": the key."""
    return replace(_ONE, key=key, title=title, role=f"pipeline.{function or key}", **changes)  # type: ignore[arg-type]


def _large(job: str, size: int) -> tuple[Case, ...]:
    """Read large recordings: the elapsed time, and the largest resident memory of a process."""
    name = f"{size >> 10}k"
    title = f"{job} of {_MEMORY_BYTES >> 30} GiB in messages of {size >> 10} KiB"
    timed = _row(
        f"{job}_{name}", f"{title}, elapsed", job, unit="ns", size=size, messages=_MEMORY_BYTES // size, slices=2
    )
    memory = (
        replace(
            timed, key=f"memory_{job}_{name}_{process}", title=f"{title}: memory of {text}", unit="bytes", kind=process
        )
        for process, text in (("python", "a Python worker"), ("java", "Java"))
    )
    return timed, *memory


def _scaling(job: str) -> tuple[Case, ...]:
    one = _row(f"{job}_1_core", f"{job} of a recording on one core, elapsed", job, unit="ns", kind="1")
    target = Target(one.key, 0.6, "≤ 0.6x one core")
    title = f"{job} of a recording on two cores, elapsed"
    return one, replace(one, key=f"{job}_2_cores", title=title, kind="2", targets=(target,))


def _follow(name: str, source: str, crew: tuple[str, ...], rate: int) -> Case:
    """Take messages out of Spark. The latency of a message ends when its batch is there."""
    return _row(
        f"follow_{name}_{rate}",
        f"latency from the bus to a batch of Spark, {source}, {rate:,} messages/s of 128 B",
        "follow",
        unit="ns",
        kind=name,
        peer_role="publish_times",
        crew=crew,
        size=128,
        rate=float(rate),
        messages=int(rate * _FOLLOWED_S),
        slices=1,
    )


PIPELINE_CASES = (
    _row("session", "start a session in a new process, with its import and a first job, elapsed", unit="ns"),
    _row("read", "read all columns (floor: Parquet)"),
    _row("read_five", "read five columns (floor: Parquet)", "read", kind="five"),
    _row("read_without_payload", "read all columns but the payload (floor: Parquet)", "read", kind="without_payload"),
    _row("read_cut", "read a recording that was cut, without index (floor: Parquet)", "read", kind="cut"),
    _row("read_rare", "count the messages of one rare endpoint"),
    _row("read_some_time", "count the messages of 1 % of the time"),
    _row("read_decoded", "read columns of NumPy rows"),
    _row("bronze", "recording to bronze (floor: Parquet to Parquet)"),
    _row("gold", "recording to gold"),
    _row("lake_bytes", "files of the lake after recording to gold", unit="bytes", slices=1),
    _row("new_piece", "bronze of a new piece, 12th of a recording"),
    _row("new_gold", "gold of a new piece, 12th of a recording"),
    _row("old_gold", "gold of nothing new"),
    _row("silver", "silver of 10,000 endpoints with 20 messages", messages=200_000),
    *(
        _row(f"as_of_{strategy}", f"as-of join of 1M and 1M rows, 20 keys, {strategy}", "as_of", kind=strategy)
        for strategy in ("auto", "arrow", "window")
    ),
    *_large("read", 65536),
    *_large("bronze", 65536),
    *_large("read", 1024),
    *_large("bronze", 1024),
    *_scaling("bronze"),
    *_scaling("gold"),
    *(_follow("recording", "recorded", ("record",), rate) for rate in (5000, 100_000)),
    *(_follow("live", "live", (), rate) for rate in (5000, 100_000)),
)
