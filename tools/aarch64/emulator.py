"""Running AArch64 programs: a namespace in which the kernel starts them through QEMU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

QEMU = "/usr/bin/qemu-aarch64-static"
# binfmt_misc: the first 20 bytes of a 64-bit little-endian ELF program (or shared one) for machine 183.
_MAGIC = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
_MASK = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff"
_RULE = f":msgq-aarch64:M::{_MAGIC}:{_MASK}:{QEMU}:F"
# Inside: the registration, a /dev/shm and a loopback network are this namespace's own and vanish with it. Since Linux
# 6.7 a user namespace has a binfmt_misc of its own; before, the mount is refused, and so is the whole run.
_SETUP = f"""
read -r mapped
set -e
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf %s '{_RULE}' > /proc/sys/fs/binfmt_misc/register
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
exec "$@"
"""


def run(command: Sequence[str], root: Path, environment: dict[str, str], folder: Path) -> int:
    """Run a command in which AArch64 programs work as any others; return its exit code.

    Args:
        root: where the emulated programs find their libraries, before the machine's own paths.
        environment: variables in addition to the variables of this process.
        folder: in which it runs.
    """
    unshare = ["unshare", "--fork", "--kill-child", "--user", "--mount", "--net", "sh", "-c", _SETUP, "sh", *command]
    variables = {**os.environ, "QEMU_LD_PREFIX": str(root), **environment}
    with subprocess.Popen(unshare, cwd=folder, env=variables, stdin=subprocess.PIPE, text=True) as process:
        _wait_for_namespace(process.pid)
        _map_users(process.pid)
        process.communicate("mapped\n")
    return process.returncode


def _wait_for_namespace(pid: int) -> None:
    own_namespace = os.readlink("/proc/self/ns/user")
    while os.readlink(f"/proc/{pid}/ns/user") == own_namespace:
        os.sched_yield()


def _map_users(pid: int) -> None:
    """Let root be root inside, with all other users as well if we are root: files of strangers need some."""
    if os.geteuid() == 0:
        users = groups = "0 0 65536"
    else:
        users, groups = f"0 {os.geteuid()} 1", f"0 {os.getegid()} 1"
        Path(f"/proc/{pid}/setgroups").write_text("deny")
    Path(f"/proc/{pid}/uid_map").write_text(users)
    Path(f"/proc/{pid}/gid_map").write_text(groups)
