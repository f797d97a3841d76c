"""Messages of sources into chunks, and the files that appear meanwhile: one module, of included parts."""

from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.errno cimport EACCES, ENOENT, ENOTDIR, errno
from libc.stdint cimport UINT32_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memset, strncpy
from posix.unistd cimport close

from msgq.impl.base.clock cimport host_offset_ns
from msgq.impl.base.core cimport mq_monotonic_ns
from msgq.impl.sources.core cimport mq_source_schema_is_seen
from msgq.impl.sources.source cimport RecordSource, EndpointSource
from msgq.recording.mcap_io.core cimport ChunkBuffer

import os

from msgq.errors import InvalidValueError, RecordingError, SegmentSizeError

include "file_watcher.pxi"
include "capture.pxi"
