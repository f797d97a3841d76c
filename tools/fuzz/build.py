"""Compiles small C programs on the library's headers."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "msgq" / "impl"
FRAME_HEADERS = ROOT / "visionipc" / "impl"
LOG_HEADERS = ROOT / "msgq" / "recording"
MESSAGE_HEADERS = ROOT / "msgq"
# Not optimised: that is compiled in a tenth of the time, runs at half the speed, and hides nothing.
SANITIZED = ("-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def compiler() -> str:
    """Return the C compiler that extensions are built with."""
    return shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]


def compile_program(source: Path, target: Path, *flags: str, compiler_name: str | None = None) -> Path:
    """Compile `source` to `target`, by the usual compiler or another; RuntimeError with its words if it refuses."""
    folders = (f"-I{HEADERS}", f"-I{FRAME_HEADERS}", f"-I{LOG_HEADERS}", f"-I{MESSAGE_HEADERS}")
    common = ("-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pthread", *folders)
    command = [compiler_name or compiler(), *common, *flags, "-o", str(target), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(command)}\n{done.stderr}")
    return target


@functools.cache
def has_sanitizer(name: str) -> bool:
    """Tell whether programs with this sanitizer ("address", "thread") can be built and run here."""
    with tempfile.TemporaryDirectory(prefix="msgq-fuzz-") as folder:
        source = Path(folder, "empty.c")
        source.write_text("int main(void) { return 0; }\n")
        try:
            program = compile_program(source, Path(folder, "empty"), f"-fsanitize={name}")
        except RuntimeError:
            return False
        return subprocess.run([program], capture_output=True, check=False).returncode == 0
