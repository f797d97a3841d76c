"""`python -m msgq` runs the command `msgq`. spark-submit runs this file by its path."""

import sys
from pathlib import Path

from msgq.cli import main

if __name__ == "__main__":
    if Path(sys.path[0]) == Path(__file__).parent:  # run by its path: our modules are no top-level ones
        del sys.path[0]
    main()
