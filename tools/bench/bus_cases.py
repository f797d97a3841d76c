"""The rows of the table of buses: many processes that sleep for most of the time."""

from dataclasses import replace
from typing import Any

from tools.bench.cases import NV12_1080P, Case

_MEMBERS = 12
_SERVICE_MEMBERS = 20
_SLEEPERS = 30
_SIZE = 256


def bus(key: str, title: str, role: str, **changes: Any) -> Case:
    """Return a row whose figure is the processor time of all processes for each delivery."""
    case = Case(key, title, "cpu", role, size=_SIZE, seconds=1.0, interpreters=True, limit_s=120)
    return replace(case, **changes)


def paced(key: str, title: str, takers: int, **changes: Any) -> Case:
    """Return a row in which a process publishes at a rate, and each of the others sleeps until a message arrives."""
    return bus(key, title, "pace", peer_role="be_woken", subscribers=takers, apart=True, **changes)


_POLL = bus(
    "bus_poll",
    f"{_MEMBERS} processes: each publishes 256 B at 100 Hz, and polls four topics of the others",
    "poll_lead",
    crew=("poll_member",) * (_MEMBERS - 1),
    endpoints=_MEMBERS,
    subscribers=4,
    rate=100.0,
)
_FAN_OUT = paced("bus_fan_out", f"256 B at 1 kHz to {_SLEEPERS} sleeping subscribers", _SLEEPERS, rate=1000.0)
_ASYNCIO = replace(
    _POLL,
    key="bus_poll_asyncio",
    title="as `bus_poll`, with a task for each topic in an asyncio loop",
    role="task_lead",
    crew=("task_member",) * (_MEMBERS - 1),
)

FRAME_BUS = paced(
    "frame_bus",
    "rendered 1080p frames at 20 Hz to 3 sleeping clients (floor: messages of 64 B)",
    3,
    size=NV12_1080P,
    depth=8,
    in_place=True,
    frames=True,
    rate=20.0,
)

BUS_CASES = (
    _POLL,
    replace(
        _POLL,
        key="bus_services",
        title=f"40 services at 1 to 100 Hz in {_SERVICE_MEMBERS} processes, each with a SubMaster of eight services"
        " (peers: the loop of `bus_poll`)",
        crew=("poll_member",) * (_SERVICE_MEMBERS - 1),
        endpoints=2 * _SERVICE_MEMBERS,
        kind="services",
        rate=0.0,
        seconds=2.0,
    ),
    _FAN_OUT,
    _ASYNCIO,
    replace(
        _ASYNCIO,
        key="bus_fan_out_asyncio",
        title="as `bus_fan_out`, with a task in an asyncio loop of each subscriber",
        crew=("task_member",) * _SLEEPERS,
        endpoints=1,
        subscribers=_SLEEPERS,
        rate=1000.0,
    ),
    replace(_POLL, key="bus_poll_c", title="as `bus_poll`, in C", role="c_bus", crew=(), limit_s=600),
    replace(_FAN_OUT, key="bus_fan_out_c", title="as `bus_fan_out`, in C", role="c_bus", peer_role="", limit_s=600),
)
