"""Frames in the format of recordings: ROS 2's sensor_msgs in CDR, which viewers support.

Formats: https://docs.ros.org/en/rolling/p/sensor_msgs/ (Image, CompressedImage).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from msgq.common.schema import Schema
from msgq.common.units import NS_PER_S
from visionipc.formats import FrameFormat, Geometry

if TYPE_CHECKING:
    from msgq.decoding.cdr_types import CdrStruct
    from msgq.decoding.core import CdrReader

_HEADER_FIELD = "std_msgs/Header header\n"
_DEFINITION_SEPARATOR = "=" * 80
_HEADER_DEFINITION = f"""
{_DEFINITION_SEPARATOR}
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{_DEFINITION_SEPARATOR}
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
IMAGE = Schema(
    "sensor_msgs/msg/Image",
    "cdr",
    (
        f"{_HEADER_FIELD}uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
        f"{_HEADER_DEFINITION}"
    ).encode(),
)
COMPRESSED_IMAGE = Schema(
    "sensor_msgs/msg/CompressedImage", "cdr", f"{_HEADER_FIELD}string format\nuint8[] data{_HEADER_DEFINITION}".encode()
)
#: Suffix of a stream's topic, which gives the name of its recorded pictures.
SUFFIX = "/image"
#: Names of our formats in ROS; NV12, YUV420P and RAW have no name there.
_ROS_ENCODINGS = {
    FrameFormat.RGB24: "rgb8",
    FrameFormat.BGR24: "bgr8",
    FrameFormat.RGBA: "rgba8",
    FrameFormat.GRAY8: "mono8",
    FrameFormat.GRAY16: "mono16",
    FrameFormat.BAYER8: "bayer_rggb8",
    **{pixels: pixels.name.lower() for pixels in (FrameFormat.NV12, FrameFormat.YUV420P, FrameFormat.RAW)},
}
_ENCODING_FORMATS = {name: pixels for pixels, name in _ROS_ENCODINGS.items()}
_CHANNEL_COUNTS = {FrameFormat.RGB24: 3, FrameFormat.BGR24: 3, FrameFormat.RGBA: 4}
_PLANAR_FORMATS = (FrameFormat.NV12, FrameFormat.YUV420P)
_FLOAT_ENCODING = re.compile(r"32FC(\d{1,5})")


class Picture(NamedTuple):
    """A frame for a recording.

    Attributes:
        layout: layout of its buffer.
        frame_id: 32 bits.
        timestamp_sof: nanoseconds; the seconds have 31 bits.
        data: all bytes of the buffer.
    """

    layout: Geometry
    frame_id: int
    timestamp_sof: int
    data: Any


def header(frame_id: int, timestamp_sof: int) -> dict[str, Any]:
    """Return the header of a picture's message."""
    stamp = {"sec": timestamp_sof // NS_PER_S & 0x7FFFFFFF, "nanosec": timestamp_sof % NS_PER_S}
    return {"stamp": stamp, "frame_id": str(frame_id)}


def message(schema: Schema, value: dict[str, Any]) -> bytes:
    """Return an IMAGE or a COMPRESSED_IMAGE with these fields. Bytes are copied once."""
    from msgq.decoding.cdr_writer import encode_cdr

    return encode_cdr(_parse_schema(schema), value)


def fields(data: bytes) -> dict[str, Any]:
    """Return the fields of an IMAGE of any program.

    Raises:
        ValueError: the data is not an IMAGE.
    """
    try:
        return _make_image_reader().read(bytes(data))
    except ValueError as error:
        raise ValueError(f"message is not a picture: {error}") from None


@lru_cache
def _parse_schema(schema: Schema) -> CdrStruct:
    from msgq.decoding.struct_definitions import parse_schema_struct

    return parse_schema_struct(schema)


@lru_cache
def _make_image_reader() -> CdrReader:
    from msgq.decoding.core import CdrReader

    return CdrReader(_parse_schema(IMAGE), is_cdr=True)


def image(picture: Picture) -> bytes:
    """Return a frame as a `sensor_msgs/msg/Image`."""
    layout = picture.layout
    value = {
        "header": header(picture.frame_id, picture.timestamp_sof),
        "height": layout.height,
        "width": layout.width,
        "encoding": f"32FC{layout.channels}" if layout.format is FrameFormat.FLOAT32 else _ROS_ENCODINGS[layout.format],
        "is_bigendian": 0,
        "step": layout.stride,
        "data": picture.data,
    }
    return message(IMAGE, value)


def picture(data: bytes, uv_offset: int | None = None) -> Picture:
    """Return the frame in a `sensor_msgs/msg/Image`.

    Args:
        data: the message.
        uv_offset: offset of the second plane, if known; None: the planes have no gaps.

    Raises:
        ValueError: the message is not a picture of msgq, is incomplete, or has an invalid layout.
    """
    image = fields(data)
    stamp, frame_id = image["header"]["stamp"], image["header"]["frame_id"]
    height, width, stride, content = image["height"], image["width"], image["step"], image["data"]
    pixels, channels = _parse_encoding(image["encoding"])
    if uv_offset is None:
        uv_offset = stride * height if pixels in _PLANAR_FORMATS else 0
        if pixels in _PLANAR_FORMATS and len(content) != uv_offset * 3 // 2:
            raise ValueError("planes have gaps, which recordings do not describe")
    layout = Geometry(pixels, width, height, stride, uv_offset, len(content), channels)
    layout.check("")
    number = int(frame_id) & 0xFFFFFFFF if frame_id.isdecimal() else 0
    return Picture(layout, number, stamp["sec"] * NS_PER_S + stamp["nanosec"], content)


def _parse_encoding(encoding: str) -> tuple[FrameFormat, int]:
    """Return the pixel format and the number of channels of an encoding."""
    if found := _FLOAT_ENCODING.fullmatch(encoding):
        return FrameFormat.FLOAT32, int(found[1])
    if encoding not in _ENCODING_FORMATS:
        raise ValueError(f"ROS encoding {encoding!r} has no frame format")
    pixels = _ENCODING_FORMATS[encoding]
    return pixels, _CHANNEL_COUNTS.get(pixels, 1)
