# cython: boundscheck=False, wraparound=False
"""Reading and writing chunks of MCAP files: one module. The parts are included in dependency order."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EINTR, EIO, ENOMEM, errno
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import os
import zlib
from functools import cache

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.channel_tally import ChannelTally

include "scan.pxi"
include "chunk_buffer.pxi"
include "chunk_writer.pxi"
include "file_space.pxi"
