# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages as Python values and columns: one module. The parts are included in dependency order."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from msgq.decoding.numbers cimport make_python_number, load_unsigned

import sys

import numpy as np

from msgq.decoding.capnproto.capnp_types import CapnpAnyPointer, CapnpData, CapnpStruct, CapnpVoid
from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, UnsupportedType, is_byte_array, measure_type
from msgq.decoding.flatbuffer.flatbuffer_types import (
    FlatbufferArray, FlatbufferStruct, FlatbufferTable, FlatbufferUnion, measure_inline_bytes,
)
from msgq.decoding.payload_errors import MalformedPayloadError
from msgq.decoding.scalar_types import ScalarType, TextType
from msgq.errors import InvalidValueError

include "capnp_reader.pxi"
include "flatbuffer_reader.pxi"
include "cdr_reader.pxi"
include "cdr_columns.pxi"
