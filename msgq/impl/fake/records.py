"""Records on the fake backend: inside the process, in virtual time."""

from msgq.impl.fake.records_board import Board, Entry, KeyObserver
from msgq.impl.fake.records_vector import Seqlock, SeqlockVector

__all__ = ["Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
