"""Records over shared memory: vectors of NumPy records, and boards of named values."""

from msgq.impl.records.core import Board, Entry, KeyObserver, Seqlock, SeqlockVector

#: The name of Kickmsg and iceoryx2.
Blackboard = Board

__all__ = ["Blackboard", "Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
