"""Checks of a channel's settings. They are compiled, because each opening needs several."""


CAPACITY_MAX, SLOTS_MAX, SLOT_BYTES_MAX = MQ_CHANNEL_CAPACITY_MAX, MQ_POOL_SLOTS_MAX, MQ_POOL_BYTES_MAX
cdef object HISTORY_MAX = 1 << 62
cdef object VIEWS_MAX = 16384


cdef int _check_range(str name, str setting, value, least, most) except -1:
    if value is not None and not (type(value) is int and least <= value <= most):
        check_range(setting, value, least, most, name)
    return 0


cdef int _check_choice(str name, str setting, value, str one, str other) except -1:
    if value != one and value != other:
        raise InvalidValueError(f"{setting} is {value!r}; give {one!r} or {other!r}", name)
    return 0


def check_config(capacity, publishers, subscribers, str name):
    _check_range(name, "capacity", capacity, 2, CAPACITY_MAX)
    if capacity is not None and capacity & capacity - 1:
        raise InvalidValueError(f"capacity is {capacity}; give a power of two, 2 to {CAPACITY_MAX}", name)
    _check_range(name, "publishers", publishers, 1, MQ_CHANNEL_PUBLISHERS)
    _check_range(name, "subscribers", subscribers, 1, MQ_CHANNEL_SUBSCRIBERS)


def check_publisher_settings(slots, slot_bytes, max_bytes, str name):
    _check_range(name, "slots", slots, 1, SLOTS_MAX)
    _check_range(name, "slot_bytes", slot_bytes, 1, SLOT_BYTES_MAX)
    _check_range(name, "max_bytes", max_bytes, 1, SLOT_BYTES_MAX)


def check_subscriber_settings(history, max_views, on_lapped, on_lost, str name):
    _check_range(name, "history", history, 0, HISTORY_MAX)
    _check_range(name, "max_views", max_views, 0, VIEWS_MAX)
    _check_choice(name, "on_lapped", on_lapped, "oldest", "newest")
    _check_choice(name, "on_lost", on_lost, "count", "raise")
