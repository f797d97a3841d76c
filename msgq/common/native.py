"""Where C and C++ programs find what they are compiled with (docs/guides/c.md)."""

from __future__ import annotations

import os


def get_include() -> str:
    """Return the folder of the headers for C and C++, in which ``msgq.pc`` is as well.

    A program includes ``<msgq.h>`` or one of ``<msgq/topic.h>``, ``<msgq/channel.h>``, ``<msgq/queue.h>`` and
    ``<msgq/records.h>``; with this folder in PKG_CONFIG_PATH, ``pkg-config msgq`` says the rest.
    """
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
