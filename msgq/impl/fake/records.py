"""Records on the fake backend: inside the process, in virtual time."""

from msgq.impl.fake.records_board import Board, Entry, KeyObserver
from msgq.impl.fake.records_vector import Seqlock, SeqlockVector

#: The name of Kickmsg and iceoryx2.
Blackboard = Board

__all__ = ["Blackboard", "Board", "Entry", "KeyObserver", "Seqlock", "SeqlockVector"]
