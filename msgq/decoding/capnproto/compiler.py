"""Reading of Cap'n Proto schemas from files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from msgq.decoding.capnproto.source_files import CapnpSourceFiles
from msgq.errors import InvalidValueError, MissingLibraryError

_COMPILE_TIMEOUT_S = 60
_CAPNP_SUFFIX = ".capnp"


def compile_capnp_file(path: Path, import_paths: Sequence[Path] = ()) -> bytes:
    """Return the binary form of a schema file. pycapnp compiles a text file (.capnp).

    Other files must be in binary form.

    Args:
        path: path of the file.
        import_paths: folders for absolute imports, searched before the folders of the file and of pycapnp.

    Raises:
        OSError: the file cannot be read.
        InvalidValueError: the text is not a valid schema, or an import is missing.
        MissingLibraryError: pycapnp is not installed.
    """
    content = path.read_bytes()
    if path.suffix != _CAPNP_SUFFIX:
        return content
    if find_spec("capnp") is None:
        raise MissingLibraryError(
            "Cap'n Proto schemas need pycapnp, which is not installed: pip install 'msgq-bus[capnproto]'"
        )
    sources = CapnpSourceFiles(path, import_paths)
    with TemporaryDirectory(prefix="msgq-") as folder:
        sources.write_to_folder(Path(folder))
        command = [sys.executable, "-m", "msgq.decoding.capnproto.compiler_process", str(Path(folder, path.name))]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_COMPILE_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            raise InvalidValueError(
                f"schema file '{path}' was not compiled within {_COMPILE_TIMEOUT_S} s; simplify its imports"
            ) from None
    if done.returncode:
        failures = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if "failed:" in line]
        raise InvalidValueError(
            f"schema file '{path}' is invalid: {failures[-1] if failures else 'pycapnp exited without a reason'}"
        )
    return done.stdout
