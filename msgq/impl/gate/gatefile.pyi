"""The files of gates: a gate's own, and those of its FIFOs."""

def gate_owner(path: str) -> tuple[int, bool | None, int] | None:
    """Return the process that made the gate of this path, whether it lives (None: unknown), and the file's inode.

    None when there is no such gate, or it was closed. Raises `SegmentError` when the file is none of ours.
    """

def unlink_gate(path: str, inode: int) -> None:
    """Remove the gate of this path and its FIFOs, unless another file has the name by now."""
