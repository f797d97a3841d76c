"""The result of a run, and its file: all samples, and the facts that a reader needs to judge them."""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tools.bench.cases import Case

Reasons = dict[tuple[str, str], str]


@dataclass
class Result:
    """All that a run has measured.

    Attributes:
        tables: the rows of each table.
        repeats: option of the run.
        quick: option of the run.
        peers: option of the run. Without peers, the run measures all installed peers.
        scale: factor of the messages of recordings.
        against: folder of the other checkout; "": none.
        machine: facts about the machine, the build and the run.
        versions: version of each installed system.
        absent: for each other system, the reason.
        samples: a dictionary for each row, system and repeat. ``slices``: the figure of each slice, in ns, messages/s
            or percent. ``waited``: the share (0 to 1) of each slice in which a process waited for its core. ``cores``:
            CPU seconds of all processes per second. ``latencies``: for calls that were timed one by one, the times in
            ns at `numbers.SHARES`. ``count``: the number of these calls. ``lost``: the number of lost messages, if any.
            ``costs``: of a bus, the context switches for each delivery, and the private and shared memory of a process
            in bytes.
        unsupported: reason for each unsupported (row, system).
        failed: reason for each failed (row, system).
        limits: limits of the machine, a dictionary for each repeat.
        apart: for each row, the time in ns of a cache line from one core to the other, before each round of turns.
    """

    tables: dict[str, list[Case]]
    repeats: int
    quick: bool
    peers: list[str]
    machine: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)
    unsupported: Reasons = field(default_factory=dict)
    failed: Reasons = field(default_factory=dict)
    limits: list[dict[str, float]] = field(default_factory=list)
    apart: dict[str, list[float]] = field(default_factory=dict)
    scale: float = 1.0
    against: str = ""

    @property
    def cases(self) -> list[Case]:
        """The rows of all tables."""
        return [case for cases in self.tables.values() for case in cases]

    def write(self, path: Path) -> None:
        """Replace the file atomically, so that an interrupted run keeps the samples of all finished rows."""
        facts = {
            "repeats": self.repeats,
            "quick": self.quick,
            "peers": self.peers,
            "scale": self.scale,
            "against": self.against,
            "machine": self.machine,
            "versions": self.versions,
            "absent": self.absent,
            "limits": self.limits,
            "unsupported": _list_reasons(self.unsupported),
            "failed": _list_reasons(self.failed),
        }
        parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in facts.items()]
        rows = {
            name: [{"key": case.key, "title": case.title, "unit": case.unit} for case in cases]
            for name, cases in self.tables.items()
        }
        for key, lines in (("tables", rows), ("apart", self.apart)):
            text = ",\n".join(f"{json.dumps(name)}: {json.dumps(line)}" for name, line in lines.items())
            parts.append(f'"{key}": {{\n{text}\n}}')
        samples = ",\n".join(map(json.dumps, self.samples))
        draft = path.with_name(f".{path.name}.draft")
        draft.write_text("{\n" + ",\n".join(parts) + f',\n"samples": [\n{samples}\n]\n}}\n', encoding="utf-8")
        os.replace(draft, path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the result in a file. Its rows have a key, a title and a unit, and cannot be measured."""
        stored = json.loads(path.read_text(encoding="utf-8"))
        for key in ("unsupported", "failed"):
            stored[key] = {(each["case"], each["system"]): each["reason"] for each in stored[key]}
        stored["tables"] = {name: [Case(**row, role="") for row in rows] for name, rows in stored["tables"].items()}
        return cls(**stored)


def _list_reasons(reasons: Reasons) -> list[dict[str, str]]:
    return [{"case": key, "system": system, "reason": reason} for (key, system), reason in reasons.items()]
