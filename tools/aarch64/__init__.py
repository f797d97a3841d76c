"""The fast tests on AArch64, emulated: ``python -m tools.aarch64`` brings all that it needs but a few packages.

A folder (``build/aarch64``) gets Debian's Python for arm64, unpacked and not installed, NumPy and pytest from their
wheels, a copy of this tree, and its extension modules, cross-compiled. Then pytest runs there under QEMU's user mode.
The tests that do not run are listed in `tests.py` with reasons, and printed. docs/internals/aarch64.md
says what the run proves.
"""
