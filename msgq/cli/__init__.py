"""The command `msgq`: formats the measurements of the library, one file for each subcommand.

The extra `cli` installs click, rich and psutil, which are imported only when the command runs. The extra `record`
installs the packages for recordings.
"""

import gc
import os
import sys
import warnings
from collections.abc import Sequence

from msgq.cli.common.interruption import get_interruption_exit_code, interrupt_on_termination
from msgq.common.optional import find_extra_of_package

_GC_THRESHOLD = 10_000  # new objects before a search for garbage. Imports create many objects, and no garbage


def _open_closed_streams() -> None:
    """Replace the standard streams that the shell closed (`<&-`, `>&-`). No other file then gets their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - open until the end


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command, and exit with its code.

    Args:
        arguments: command-line arguments after `msgq`; None: from `sys.argv`.
    """
    # By default, the import of NumPy starts a thread per core for linear algebra, which no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(_GC_THRESHOLD)
    interrupt_on_termination()
    _open_closed_streams()
    try:
        from msgq.cli.app import app, print_warning

        warnings.showwarning = print_warning
        app(arguments, prog_name="msgq")
    except KeyboardInterrupt:  # during the imports
        sys.exit(get_interruption_exit_code())
    except ModuleNotFoundError as missing:
        extra = find_extra_of_package(missing)
        if extra is None:
            raise
        sys.exit(f"msgq: library {missing.name} not installed; run: pip install 'msgq-bus[{extra}]'")
    finally:
        gc.freeze()  # a search for garbage at the end of the process would visit all objects of all modules
