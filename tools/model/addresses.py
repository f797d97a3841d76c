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


# ---- of visionipc's frames: visionipc/impl/leases.h ----


def generation(buffer: int) -> str:
    """The frame in a buffer; 0 while the server may write there."""
    return f"generation[{buffer}]"


def pixel(buffer: int, i: int) -> str:
    """A part of the picture: the generation of the frame that it belongs to."""
    return f"pixel[{buffer}][{i}]"


def lease(row: int, buffer: int) -> str:
    """The generation that a client holds; 0: none."""
    return f"lease[{row}][{buffer}]"


def last_read(row: int, buffer: int) -> str:
    """The last generation that a client loaded there. Only the checks use this word."""
    return f"last_read[{row}][{buffer}]"


def seen_generation(row: int) -> str:
    """The newest generation that a client has seen; 0: none yet."""
    return f"seen_generation[{row}]"


STOCK_READERS = "stock_readers"  # of a stream's topic


def client_left(row: int) -> str:
    """1: the row's client left."""
    return f"client_left[{row}]"
