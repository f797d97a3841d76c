"""The interpreters of `make nightly`: a missing one is an error, and the last list names it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msgq.common.optional import missing_library
from msgq.errors import MissingLibraryError
from tests.missing_packages import find_missing_module
from tools import pythons


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Keep the cache and the results in an empty folder."""
    monkeypatch.setattr(pythons, "CACHE", tmp_path)
    monkeypatch.setattr(pythons, "RESULTS", tmp_path)
    return tmp_path


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["pythons.py", *arguments])
    return pythons.main()


def test_missing_interpreter_is_an_error(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run_main(monkeypatch, "3.99") == 1
    assert "Python 3.99 is missing: install it" in capfd.readouterr().err


def test_interpreter_of_path_is_found(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(shutil, "which", {"python3.99": sys.executable}.get)
    assert run_main(monkeypatch, "3.99") == 0
    assert capfd.readouterr().out == f"{sys.executable}\n"


def test_interpreter_that_does_not_start_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", {"python3.99": "/bin/false"}.get)
    assert run_main(monkeypatch, "3.99") == 1


@pytest.mark.ci
def test_environment_of_an_interpreter_has_pip(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    wheels = Path(pytest.importorskip("ensurepip").__file__).with_name("_bundled")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    monkeypatch.setattr(shutil, "which", {"python3.99": sys.executable}.get)
    assert run_main(monkeypatch, "--environment", str(folder / "new"), "3.99") == 0
    command = [str(folder / "new/bin/python"), "-I", "-m", "pip", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"from {folder}/new/lib" in done.stdout


def test_results_list_each_version_and_fail_for_a_missing_one(
    monkeypatch: pytest.MonkeyPatch, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "3.98").write_text("passed with 3.98.1\n")
    assert run_main(monkeypatch, "--results", "3.98") == 0
    (folder / "3.99").write_text("missing\n")
    assert run_main(monkeypatch, "--results", "3.98", "3.99", "3.99t") == 1
    lines = [line.split(maxsplit=1) for line in capfd.readouterr().out.splitlines()[-3:]]
    assert lines == [["3.98", "passed with 3.98.1"], ["3.99", "missing"], ["3.99t", "not run"]]


def import_missing_modules() -> None:
    try:
        import a_package_without_a_wheel  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError("needs a package") from error


def test_test_of_missing_package_names_it() -> None:
    with pytest.raises(MissingLibraryError) as raised:
        import_missing_modules()
    assert find_missing_module(raised.value, "") == "a_package_without_a_wheel"
    assert find_missing_module(missing_library("msgq.lake", "lake", "no_wheel"), "") == "no_wheel"
    assert find_missing_module(ModuleNotFoundError("", name="msgq.impl.base.core"), "") is None
    assert find_missing_module(ValueError(), "") is None


@pytest.mark.parametrize(
    ("text", "module"),
    [
        (str(missing_library("msgq serve", "serve", "pytest", "no_wheel")), "no_wheel"),
        ("assert 1 == 0, where 1 = <Result ModuleNotFoundError(\"No module named 'no_wheel.part'\")>", "no_wheel"),
        (str(missing_library("msgq serve", "serve", "pytest")), None),  # a test that hides an installed package
        ("assert 1 == 0", None),
    ],
)
def test_quoted_output_of_a_process_names_missing_package(text: str, module: str | None) -> None:
    assert find_missing_module(AssertionError(), text) == module
