"""The real input of the demo: what this machine says about itself."""

from collections.abc import Callable
from typing import Any

import psutil

_TOP_PROCESS_COUNT = 5


def _sample_cpu() -> Any:
    """Load of each core since the look before, in percent."""
    return psutil.cpu_percent(percpu=True)


def _sample_network() -> Any:
    """Counters of each interface."""
    return {name: counters._asdict() for name, counters in psutil.net_io_counters(pernic=True).items()}


def _sample_memory() -> Any:
    """Memory of the machine, in bytes."""
    return psutil.virtual_memory()._asdict()


def _sample_disk() -> Any:
    """Counters of all disks; nothing where the kernel shows none."""
    counters = psutil.disk_io_counters()
    return counters._asdict() if counters else {}


def _sample_processes() -> Any:
    """The processes that used the CPU most since the look before."""
    everyone = [process.info for process in psutil.process_iter(["pid", "name", "cpu_percent", "num_threads"])]
    return sorted(everyone, key=lambda info: info["cpu_percent"] or 0.0, reverse=True)[:_TOP_PROCESS_COUNT]


def _sample_sensor() -> Any:
    """Load of the machine since the look before, in percent."""
    return psutil.cpu_percent()


def _sample_fill() -> Any:
    """How full memory and disk are, in percent."""
    return [psutil.virtual_memory().percent, psutil.disk_usage("/").percent]


def _sample_gauges() -> Any:
    """The averages of the load, how full memory is, and the load of the first cores, in percent of one of them."""
    return [
        *(100 * load for load in psutil.getloadavg()),
        psutil.virtual_memory().percent,
        *psutil.cpu_percent(percpu=True),
    ]


SAMPLE_FUNCTIONS: dict[str, Callable[[], Any]] = {
    "cpu": _sample_cpu,
    "network": _sample_network,
    "memory": _sample_memory,
    "disk": _sample_disk,
    "processes": _sample_processes,
    "sensor": _sample_sensor,
    "heat": _sample_cpu,
    "fill": _sample_fill,
    "gauges": _sample_gauges,
}
