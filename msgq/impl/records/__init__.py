"""Records over shared memory: vectors of NumPy records, and boards of named values."""

from msgq.impl.records.core import Board, Entry, KeyObserver, Seqlock, SeqlockVector

__all__ = ["Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
