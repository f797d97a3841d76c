"""Records over shared memory: vectors of NumPy records, and boards of named values."""

from msgq.impl.records.board import Board, Entry, KeyObserver
from msgq.impl.records.vector import Seqlock, SeqlockVector

__all__ = ["Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
