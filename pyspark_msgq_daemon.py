"""Starts Spark's Python workers, as `pyspark.daemon` does, which is this but for one thing: when Java closes the
connection of an idle worker, as it does with each in the end, no stack of a BrokenPipeError is printed.

Not a part of the package `msgq`: that would bring NumPy and its threads into a process that forks.
"""

from __future__ import annotations

from socket import socket

from pyspark import daemon

_run_pyspark_worker = daemon.worker


def run_worker(sock: socket, authenticated: bool) -> int:
    """Serve Java until it closes the connection; 0 if it went well."""
    try:
        return _run_pyspark_worker(sock, authenticated)
    except ConnectionError:
        return 1


if __name__ == "__main__":
    daemon.worker = run_worker
    daemon.manager()
