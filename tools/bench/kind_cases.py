"""The rows of the table of kinds: what the same bytes cost on a topic, a channel, a record and a work queue."""

from dataclasses import replace

from tools.bench.cases import CASES

_WANTED = {
    "pair": "write 64 B and read them, one thread",
    "ping": "from a writer to a busy reader of another process, one way",
    "ping_asleep": "the same, to a reader that was asleep for 2 ms",
}
_BY_KEY = {case.key: case for case in CASES}

KIND_CASES = tuple(replace(_BY_KEY[key], title=title, targets=(), kind="seqlock") for key, title in _WANTED.items())
