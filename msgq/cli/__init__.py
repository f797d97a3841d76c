"""The command `msgq`: renders what the library measures, one file a verb.

click, rich and psutil come with the extra `cli` and are imported only when the command runs; what the verbs about
recordings need comes with the extra `record`.
"""

import sys
from collections.abc import Sequence

from msgq.common.optional import find_extra_of_package


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit with its code.

    Parameters
    ----------
    arguments : what follows `msgq` on the command line; None takes it from `sys.argv`.
    """
    try:
        from msgq.cli.app import app

        app(arguments, prog_name="msgq")
    except ModuleNotFoundError as missing:
        extra = find_extra_of_package(missing)
        if extra is None:
            raise
        sys.exit(f"msgq: library {missing.name} not installed; run: pip install 'msgq-bus[{extra}]'")
