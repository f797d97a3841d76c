"""Python for arm64 in a folder, without touching the machine's own packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Required programs, and the packages of Debian that have them.
NEEDED = {
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "qemu-aarch64-static": "qemu-user-static",
    "apt-get": "apt",
    "dpkg-deb": "dpkg",
    "unshare": "util-linux",
    "ip": "iproute2",
}
MIRROR = os.environ.get("AARCH64_MIRROR", "http://deb.debian.org/debian")
RELEASE, PYTHON = "bookworm", "3.11"
DEBS = ("python3", "libpython3-dev", "libstdc++6")
WHEELS = (
    "numpy>=1.26",
    "pytest>=8,<9.2",
    "pytest-xdist",
    "hypothesis>=6.100",
    "psutil>=5.9",
    "click>=8.1",
    "rich>=13",
    "pyzmq>=26",
)
PLATFORMS = ("manylinux_2_17_aarch64", "manylinux2014_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")


class DownloadError(Exception):
    """A download program failed. The text has the name of the program and the last line of its output."""


def _bring(command: list[str | Path]) -> None:
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise DownloadError(f"{Path(command[0]).name} ended with {done.returncode} (mirror {MIRROR}): {reason}")


def missing() -> list[str]:
    """Return the packages to install first."""
    return [packages for program, packages in NEEDED.items() if shutil.which(program) is None]


def unpack_python(folder: Path) -> Path:
    """Download Debian's Python for arm64 and unpack it; return its root."""
    root, state = folder / "root", folder / "apt"
    if (folder / "root.done").exists():
        return root
    for path in (root, state / "lists/partial", state / "cache/archives/partial"):
        path.mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    (state / "sources.list").write_text(f"deb [arch=arm64 signed-by={keys}] {MIRROR} {RELEASE} main\n")
    options = {
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "APT::Architecture": "arm64",
        "APT::Architectures::": "arm64",
        "APT::Update::Error-Mode": "any",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-q", *(f"-o{name}={value}" for name, value in options.items())]
    _bring([*apt, "update"])
    _bring([*apt, "install", "-y", "--download-only", *DEBS])
    for package in sorted((state / "cache/archives").glob("*.deb")):
        _bring(["dpkg-deb", "-x", package, root])
    (folder / "root.done").touch()
    return root


def unpack_wheels(folder: Path) -> Path:
    """Download what the tests import and unpack it; return where."""
    site = folder / "site"
    if (folder / "site.done").exists():
        return site
    pip = [sys.executable if _has_pip() else "python3", "-m", "pip", "install", "--quiet", "--upgrade"]
    target: list[str | Path] = [
        "--target",
        site,
        "--only-binary=:all:",
        "--implementation",
        "cp",
        "--python-version",
        PYTHON,
    ]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    _bring([*pip, *target, *platforms, *WHEELS])
    (folder / "site.done").touch()
    return site


def _has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True, check=False).returncode == 0
