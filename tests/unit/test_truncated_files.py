"""Another program cuts a file that is mapped: each use of it is an error that says so, and no process ends by SIGBUS.

truncation_children.py has a line for each file and each program that maps it. Memory of frames is sealed, so no
process can cut it (tests/visionipc/test_hostile_servers.py). The clock is read, not mapped. tests/unit/test_origin.py
cuts the word for origins.
"""

from __future__ import annotations

import json
import os
import re
import signal

import pytest

import msgq
from msgq.errors import SegmentSizeError
from tests.support import ROOT, SHM, Child
from tests.unit import truncation_children
from tests.unit.truncation_children import FILES

CASES = [(file, program) for file, (_, programs) in FILES.items() for program in programs]
#: Sources that map files, and why each mapping bears a file that becomes smaller.
MAPS = {
    "msgq/impl/base/file.h": "guarded by mq_map_file",
    "msgq/impl/base/mapping.h": "private memory of a closed handle",
    "msgq/impl/base/views.pxi": "guarded by DescriptorMapping",
    "msgq/impl/base/liveness_lock.h": "a page that holds a lock; it is never read",
    "msgq/impl/base/mapguard.h": "zeros",
    "msgq/impl/base/populate.h": "private memory",
    "msgq/impl/base/private_file.h": "private memory",
    "msgq/impl/records/recordfile.pxi": "private memory",
}


def cut(file: str, prefix: str, name: str, size: int = 0) -> None:
    (path,) = SHM.glob(FILES[file][0].format(prefix=prefix, name=name))
    os.truncate(path, size)


def outcomes(file: str, program: str, prefix: str, token: str, env: dict[str, str]) -> list[list[str] | int | None]:
    """Return the result of each call of a program: an error, None, or the exit code of the process."""
    found: list[list[str] | int | None] = []
    count = 1
    while len(found) < count:
        name = f"{token}{len(found)}"
        with Child(truncation_children.use, file, program, name, len(found), env=env) as child:
            count = child.hear()
            cut(file, prefix, name)
            child.say()
            assert child.process.stdout is not None
            line = child.process.stdout.readline()
            found.append(child.process.wait() if not line else json.loads(line))
        for path in SHM.glob(f"msgqgate_{prefix}*"):
            path.unlink()
    return found


@pytest.mark.parametrize(("file", "program"), CASES)
def test_use_of_truncated_file_raises(file: str, program: str, prefix: str, token: str) -> None:
    for outcome in outcomes(file, program, prefix, token, {}):
        assert isinstance(outcome, list), (outcome, -signal.SIGBUS)
        error, text = outcome
        assert error in ("SegmentSizeError", "CorruptSegmentError"), outcome
        assert re.search(r"another program truncated|another process has since set to 0|has 0 bytes", text), outcome


@pytest.mark.ci
@pytest.mark.parametrize(("file", "program"), CASES)
def test_use_of_truncated_file_without_sigbus_handler_raises_or_ends_process(
    file: str, program: str, prefix: str, token: str
) -> None:
    for outcome in outcomes(file, program, prefix, token, {"MSGQ_SIGBUS": "0"}):
        assert outcome == -signal.SIGBUS or (isinstance(outcome, list) and outcome[0] != "MultiplePublishersError")


def test_topic_can_be_recreated_after_truncation_of_side_segment(prefix: str, token: str) -> None:
    pub, sub = msgq.pub_sock(token), msgq.sub_sock(token)
    pub.send(b"pending")
    cut("side segment", prefix, token)
    with pytest.raises(SegmentSizeError, match="side segment"):
        pub.send(b"x")
    with pytest.raises(SegmentSizeError, match="side segment"):
        sub.receive(True)
    pub.close()
    sub.close()
    for folder in ("msgq_", "msgqside_"):
        (SHM / f"{folder}{prefix}/{token}").unlink()
    with msgq.pub_sock(token) as pub, msgq.sub_sock(token) as sub:
        pub.send(b"x")
        assert sub.receive() == b"x"


def test_each_source_file_that_calls_mmap_is_listed() -> None:
    sources = [path for path in (ROOT / "msgq").rglob("*.[chp]*") if path.suffix in (".pyx", ".pxi", ".h", ".c")]
    mapping = {
        str(path.relative_to(ROOT))
        for path in sources
        if not path.with_suffix(".pyx").exists() or path.suffix == ".pyx"  # no output of Cython
        if re.search(r"\bmmap\(", path.read_text())
    }
    assert mapping == MAPS.keys()
