"""The real input of the demo: what this machine says about itself."""

from collections.abc import Callable
from typing import Any

import psutil

_TOP = 5


def _cpu() -> Any:
    """Load of each core since the look before, in percent."""
    return psutil.cpu_percent(percpu=True)


def _network() -> Any:
    """Counters of each interface."""
    return {name: counters._asdict() for name, counters in psutil.net_io_counters(pernic=True).items()}


def _memory() -> Any:
    """Memory of the machine, in bytes."""
    return psutil.virtual_memory()._asdict()


def _disk() -> Any:
    """Counters of all disks; nothing where the kernel shows none."""
    counters = psutil.disk_io_counters()
    return counters._asdict() if counters else {}


def _processes() -> Any:
    """The processes that used the CPU most since the look before."""
    everyone = [process.info for process in psutil.process_iter(["pid", "name", "cpu_percent", "num_threads"])]
    return sorted(everyone, key=lambda info: info["cpu_percent"] or 0.0, reverse=True)[:_TOP]


def _sensor() -> Any:
    """Load of the machine since the look before, in percent."""
    return psutil.cpu_percent()


def _fill() -> Any:
    """How full memory and disk are, in percent."""
    return [psutil.virtual_memory().percent, psutil.disk_usage("/").percent]


def _gauges() -> Any:
    """The averages of the load, how full memory is, and the load of the first cores, in percent of one of them."""
    return [
        *(100 * load for load in psutil.getloadavg()),
        psutil.virtual_memory().percent,
        *psutil.cpu_percent(percpu=True),
    ]


SOURCES: dict[str, Callable[[], Any]] = {
    "cpu": _cpu,
    "network": _network,
    "memory": _memory,
    "disk": _disk,
    "processes": _processes,
    "sensor": _sensor,
    "heat": _cpu,
    "fill": _fill,
    "gauges": _gauges,
}
