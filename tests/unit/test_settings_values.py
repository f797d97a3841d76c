"""Python and C accept and refuse the same values of environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest

import msgq
from msgq.errors import InvalidValueError
from tests.support import DEADLINE
from tests.unit.c_programs import Program

ACCEPTED = {
    "MSGQ_MODE": ("", "600", "0660", "0o660", "666"),
    "MSGQ_GROUP": ("", "0", "root"),
    "MSGQ_TRUST": ("", "root", "0", " root , 12345 ", "4294967294"),
    "MSGQ_SPIN_US": ("", "0", "5", "0000005", "1000000"),
    "MSGQ_SIGBUS": ("", "0", "1"),
    "MSGQ_PREALLOC": ("", "0", "1"),
}
REFUSED = {
    "MSGQ_MODE": (" 660", "660 ", "+660", "6_60", "-660", "0o", "000660", "777", "400", "rw", "0x1b0", "\u0666\u0660"),
    "MSGQ_GROUP": (" 0", "0 ", "-1", "+0", "4294967295", "4294967296", "nobody-has-this-name"),
    "MSGQ_TRUST": ("root,,0", ",", "root,", "1 2", "-1", "4294967295", "\t0", "nobody-has-this-name"),
    "MSGQ_SPIN_US": ("1.5", "1e3", " 5", "5 ", "+5", "-1", "1_000", "1000001", "00000005", "\u0665", "fast"),
    "MSGQ_SIGBUS": ("2", " 1", "yes", "01"),
}
CASES = [(variable, value, True) for variable, values in ACCEPTED.items() for value in values] + [
    (variable, value, False) for variable, values in REFUSED.items() for value in values
]


@pytest.mark.parametrize("variable", sorted(ACCEPTED | REFUSED))
def test_python_and_c_accept_and_refuse_same_values(
    programs: Path, prefix: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = [(value, accepted) for name, value, accepted in CASES if name == variable]
    by_python, by_c = [], []
    for number, (value, _) in enumerate(wanted):
        monkeypatch.setenv(variable, value)
        by_python.append((value, _is_accepted_by_python(f"p{number}", variable)))
        monkeypatch.delenv(variable)
        by_c.append((value, _is_accepted_by_c(programs, f"c{number}", variable, value)))
    assert by_python == wanted
    assert by_c == wanted


def _is_accepted_by_python(queue: str, variable: str) -> bool:
    try:
        msgq.MessageQueue(queue).close()
    except InvalidValueError as error:
        return variable not in str(error)
    return True


def _is_accepted_by_c(programs: Path, queue: str, variable: str, value: str) -> bool:
    with Program(programs / "queue", "send", queue, "0", env={variable: value}) as program:
        _, errors = program.process.communicate(timeout=DEADLINE)
        assert program.process.returncode == 0 or variable in errors
        return program.process.returncode == 0
