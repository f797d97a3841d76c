"""Real input of the demo: telemetry of this machine."""

from collections.abc import Callable
from typing import Any

import psutil

_TOP_PROCESS_COUNT = 5


def _sample_cpu() -> Any:
    """Return the load of each core since the previous sample, in percent."""
    return psutil.cpu_percent(percpu=True)


def _sample_network() -> Any:
    """Return the counters of each interface."""
    return {name: counters._asdict() for name, counters in psutil.net_io_counters(pernic=True).items()}


def _sample_memory() -> Any:
    """Return the memory usage of the machine, in bytes."""
    return psutil.virtual_memory()._asdict()


def _sample_disk() -> Any:
    """Return the counters of all disks; empty if the kernel provides none."""
    counters = psutil.disk_io_counters()
    return counters._asdict() if counters else {}


def _sample_processes() -> Any:
    """Return the processes that used the CPU most since the previous sample."""
    everyone = [process.info for process in psutil.process_iter(["pid", "name", "cpu_percent", "num_threads"])]
    return sorted(everyone, key=lambda info: info["cpu_percent"] or 0.0, reverse=True)[:_TOP_PROCESS_COUNT]


def _sample_sensor() -> Any:
    """Return the load of the machine since the previous sample, in percent."""
    return psutil.cpu_percent()


def _sample_fill() -> Any:
    """Return the usage of memory and disk, in percent."""
    return [psutil.virtual_memory().percent, psutil.disk_usage("/").percent]


def _sample_gauges() -> Any:
    """Return the load averages, the memory usage, and the load of the first cores, in percent of one core."""
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
