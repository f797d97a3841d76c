"""Location of the files for C and C++ programs (docs/guides/c.md)."""

from __future__ import annotations

import os


def get_include() -> str:
    """Return the folder with the C and C++ headers and ``msgq.pc``.

    A program includes ``<msgq.h>``, or one of ``<msgq/topic.h>``, ``<msgq/channel.h>``, ``<msgq/queue.h>`` and
    ``<msgq/records.h>``. If PKG_CONFIG_PATH contains this folder, ``pkg-config msgq`` returns all compiler options.
    """
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
