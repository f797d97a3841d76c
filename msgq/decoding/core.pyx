# cython: boundscheck=False, wraparound=False, cdivision=True
"""Messages as Python values and columns: one module. The parts are included in dependency order."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint16_t, uint32_t, uint64_t

from msgq.decoding.numbers cimport number_of, take_bits

import sys

import numpy as np

from msgq.decoding import type_model
from msgq.decoding.capnproto import schema_types as capnproto
from msgq.decoding.malformed_payload import MalformedPayloadError
from msgq.decoding.flatbuffer import schema_types as flatbuffer
from msgq.errors import InvalidValueError

include "capnp_reader.pxi"
include "flatbuffer_reader.pxi"
include "cdr_reader.pxi"
include "cdr_columns.pxi"
