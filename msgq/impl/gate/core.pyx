"""Gates: one module. The parts are included in dependency order."""

from cpython.exc cimport PyErr_CheckSignals
from cython cimport critical_section
from libc.stdint cimport INT32_MAX
from libc.string cimport memset
from posix.fcntl cimport O_RDWR
from posix.stat cimport fstat, S_ISFIFO, struct_stat
from posix.unistd cimport close

from msgq.impl.base.core cimport (
    check_file, close_at_exit, create_file, forget_at_exit, WAIT_FOREVER, lock_file, map_file, MQ_DEAD, MQ_FUTEX_32,
    MQ_FUTEX_WAITV_MAX, mq_futex_wake_all, mq_liveness_lock, mq_liveness_unlock, mq_mapping_was_truncated,
    mq_monotonic_ns, name_file, open_file, remove_file, sleep_on_futexes, unlock_file, use_memory,
)
from msgq.impl.base.process cimport fork_generation, is_alive, this_process

import contextlib
import os

from msgq.common import naming, settings, shm_paths
from msgq.errors import (
    ControllerDiedError, CorruptSegmentError, EventError, EventTimeoutError, InvalidValueError, LayoutVersionError,
    SegmentSizeError, StateError,
)
from msgq.impl.base.argument_checks import check_seconds
from msgq.impl.base.core import is_trusted

include "gatefile.pxi"
include "gate.pxi"
