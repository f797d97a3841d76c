"""The names of the shared words, read as in `load(at.WRITE_POINTER)`. msgq/impl/ring/layout.h has them as bytes."""

WRITE_POINTER = "write_pointer"
WRITE_UID = "write_uid"
LIMIT = "limit"
CHECKPOINT_SEQ_BEGIN = "checkpoint_seq_begin"
CHECKPOINT_SEQ = "checkpoint_seq"
EVENTCOUNT = "eventcount"  # (number of wakes, whether a thread may sleep)


def read_pointer(slot: int) -> str:
    """Where a stock publisher believes the slot's owner to be."""
    return f"read_pointers[{slot}]"


def read_valid(slot: int) -> str:
    """The flag that stock subscribers trust."""
    return f"read_valids[{slot}]"


def read_uid(slot: int) -> str:
    """The owner of a slot; 0: none."""
    return f"read_uids[{slot}]"


def begun_sequence(uid: str) -> str:
    """Of a publisher's entry: the sequence after the send in progress."""
    return f"begun_sequence[{uid}]"


def sent_sequence(uid: str) -> str:
    """Of a publisher's entry: messages published."""
    return f"sent_sequence[{uid}]"


def checkpoint(cell: int, field: str) -> str:
    """`field` is position, sequence or era."""
    return f"checkpoint[{cell}].{field}"
