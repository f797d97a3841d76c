"""`python -m tools.aarch64 [arguments of pytest]`: ends with its exit code, or with 2 when something cannot be had."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import tools.aarch64
from tools.aarch64 import cross, emulator, sysroot
from tools.aarch64.tests import LEFT_OUT, NOT_RUN, TESTS, WORDS
from tools.fuzz.build import ROOT, compile_program
from tools.fuzz.corpus import make_corpus
from tools.fuzz.parent import DRIVERS

FOLDER = ROOT / "build" / "aarch64"
FUZZ_SECONDS = 5
# With optimization, GCC rejects strnlen of a literal that is shorter than the limit.
FLAGS = ("-O1", "-static", "-Wno-stringop-overread")


def fuzz(work: Path) -> int:
    """Run the fuzzer's drivers, without sanitizers; return how many found something."""
    failures, corpus = 0, [str(path) for path in make_corpus(work)]
    for level, name in DRIVERS.items():
        source = ROOT / "tools" / "fuzz" / f"{name}.c"
        program = compile_program(source, work / level, *FLAGS, compiler_name=cross.COMPILER)
        arguments = ["1", "0", "1000000000", str(FUZZ_SECONDS), *(corpus if level == "logs" else [])]
        print(f"fuzz {level}: ", end="", flush=True)
        failures += subprocess.run([emulator.QEMU, str(program), *arguments], check=False).returncode != 0
    return failures


def main() -> int:
    """Build the programs, run the possible tests, and list the other tests."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(f"{__doc__}\n\n{tools.aarch64.__doc__}")
        return 0
    if packages := sysroot.missing():
        print(f"missing: apt-get install {' '.join(packages)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        root, site = sysroot.unpack_python(FOLDER), sysroot.unpack_wheels(FOLDER)
    except sysroot.DownloadError as error:
        print(error, file=sys.stderr)
        return 2
    tree = cross.copy_tree(FOLDER)
    cross.build_extensions(tree, root)
    with tempfile.TemporaryDirectory(prefix="msgq-aarch64-") as work:
        failures = fuzz(Path(work))
    for test, reason in {**LEFT_OUT, **NOT_RUN}.items():
        print(f"left out: {test}: {reason}")
    python = f"{root}/usr/bin/python{sysroot.PYTHON}"
    pytest = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_msgq", "-k", WORDS, *TESTS]
    pytest += [word for test in LEFT_OUT for word in ("--deselect", test)]
    environment = {"PYTHONPATH": f"{tree}:{site}", "CC": cross.COMPILER}
    code = emulator.run([*pytest, *sys.argv[1:]], root, environment, tree)
    return code or int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
