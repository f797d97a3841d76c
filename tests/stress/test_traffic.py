"""One random traffic for each kind and each disturbance: a table over `tools.chaos`, whose checker looks at all of it.

Writers send in each way there is, readers wait and receive in each way there is, and every message is checked when it
comes; the history of all processes is balanced at the end.

Failure would mean: a message, frame or value is torn, doubled, out of order or lost without being counted; a process
hangs; a view, frame or job changes under the hands of who holds it; or what the dead had held does not come back.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest

from tests.support import LONGER, ROOT, run_child
from tools.chaos.__main__ import soak
from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.queues import Queues
from tools.chaos.kinds.records import Records
from tools.chaos.kinds.topics import Patient, Rows, Topics
from tools.chaos.plan import plan_of

KINDS = {kind.__name__: kind for kind in (Topics, Rows, Patient, Channels, Frames, Records, Queues)}
SIZES = {"Topics": 4096, "Rows": 1 << 16, "Channels": 64, "Frames": 1 << 14, "Records": 64, "Queues": 64}
DISTURBED = {"kills": 15, "stops": 15, "takeovers": 15}  # interventions, at least
TAKES = {"laps": 2000}  # times that readers take something, at least; else TAKES_DISTURBED
TAKES_DISTURBED, TAKES_AT_NIGHT = 600, 6000
SOAK_SECONDS = 10.0
patient = pytest.mark.watchdog(SOAK_SECONDS * max(LONGER, 1) + 240.0)  # longer than a run waits for its processes


def run(kind: str, size: int, copies: int, disturbance: str, seed: int, takes: int) -> list[str]:
    """Child: return what broke."""
    plan, interventions = plan_of(KINDS[kind], size, disturbance, copies), DISTURBED.get(disturbance, 0)
    with contextlib.redirect_stdout(sys.stderr):  # the parent hears what is on standard output
        return soak(plan, seed, takes=takes * LONGER, interventions=interventions * LONGER)


@patient
@pytest.mark.parametrize(
    "disturbance",
    [
        "laps",
        "kills",
        "stops",
        "forks",
        *(pytest.param(each, marks=pytest.mark.nightly) for each in ("takeovers", "guests", "crowd", "threads")),
    ],
)
@pytest.mark.parametrize("kind", SIZES)
def test_traffic_with_disturbance_stays_correct(prefix: str, seed: int, kind: str, disturbance: str) -> None:
    assert run_child(run, kind, SIZES[kind], 2, disturbance, seed, TAKES.get(disturbance, TAKES_DISTURBED)) == []


@patient
def test_patient_publishers_that_restart_lose_no_message(prefix: str, seed: int) -> None:
    """What: publishers that send only when everybody has read everything come and go, and so do readers."""
    assert run_child(run, "Patient", 4096, 2, "guests", seed, TAKES_DISTURBED) == []


@pytest.mark.nightly
@patient
@pytest.mark.parametrize("disturbance", ["laps", "kills", "takeovers"])
@pytest.mark.parametrize(
    ("kind", "size", "copies"),
    [
        ("Topics", 1024, 2),
        ("Topics", 1 << 20, 2),
        ("Rows", 1 << 10, 2),
        ("Rows", 1 << 20, 2),
        ("Channels", 8, 2),
        ("Channels", 1024, 2),
        ("Frames", 1 << 17, 2),
        ("Records", 8, 2),
        ("Records", 56, 4),
        ("Records", 4096, 2),
        ("Records", 4096, 4),
        ("Records", 1 << 16, 2),
        pytest.param("Records", 1 << 20, 2, marks=pytest.mark.needs_shm(40 << 20)),
        ("Queues", 1, 2),
        ("Queues", 5, 2),
        ("Queues", 200, 2),
    ],
)
def test_traffic_of_another_size_stays_correct(
    prefix: str, seed: int, kind: str, size: int, copies: int, disturbance: str
) -> None:
    takes = TAKES_AT_NIGHT if disturbance == "laps" else TAKES_DISTURBED
    assert run_child(run, kind, size, copies, disturbance, seed, takes) == []


@patient
def test_soak_of_all_kinds_stays_correct(seed: int, prefix: str) -> None:
    """What: the soak of `tools.chaos` in its short form; processes that use all kinds at once take part.

    Why: all the ways to send, to receive, to end and to be disturbed meet here, as nobody planned it.
    """
    command = [sys.executable, "-m", "tools.chaos", "--seconds", str(SOAK_SECONDS * LONGER), "--seed", str(seed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
