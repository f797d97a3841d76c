"""The names of the shared words, to be read as in `load(at.WRITE_POINTER)`. msgq/impl/layout.h has them as bytes."""

WRITE_POINTER = "write_pointer"
WRITE_UID = "write_uid"
LIMIT = "limit"
TURN_BEGIN = "turn_begin"
TURN = "turn"
ATTENTION = "attention"  # (wakes so far, somebody may sleep)


def read_pointer(slot: int) -> str:
    """Where a stock publisher believes the slot's owner to be."""
    return f"read_pointers[{slot}]"


def read_valid(slot: int) -> str:
    """The flag that stock subscribers trust."""
    return f"read_valids[{slot}]"


def read_uid(slot: int) -> str:
    """Whose slot it is; 0: nobody's."""
    return f"read_uids[{slot}]"


def begun(uid: str) -> str:
    """Of a publisher's entry: the sequence after the send in progress."""
    return f"begun[{uid}]"


def sent(uid: str) -> str:
    """Of a publisher's entry: messages published."""
    return f"sent[{uid}]"


def milestone(cell: int, field: str) -> str:
    """`field` is position, sequence or era."""
    return f"milestone[{cell}].{field}"
