"""Frames as recordings have them, in the form that viewers know: ROS 2's sensor_msgs, in CDR.

Formats: https://docs.ros.org/en/rolling/p/sensor_msgs/ (Image, CompressedImage); CDR as in OMG's DDS-RTPS.
"""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

from msgq.schema import Schema
from msgq.units import NS_PER_S
from visionipc.formats import FrameFormat, Geometry

_HEADER = "std_msgs/Header header\n"
_SEPARATOR = "=" * 80
_OF_HEADER = f"""
{_SEPARATOR}
MSG: std_msgs/Header
builtin_interfaces/Time stamp
string frame_id
{_SEPARATOR}
MSG: builtin_interfaces/Time
int32 sec
uint32 nanosec
"""
IMAGE = Schema(
    "sensor_msgs/msg/Image",
    "cdr",
    (
        f"{_HEADER}uint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\nuint8[] data"
        f"{_OF_HEADER}"
    ).encode(),
)
COMPRESSED_IMAGE = Schema(
    "sensor_msgs/msg/CompressedImage", "cdr", f"{_HEADER}string format\nuint8[] data{_OF_HEADER}".encode()
)
#: Behind the name of a stream's topic, that of its recorded pictures.
SUFFIX = "/image"
#: What ROS calls our formats; NV12, YUV420P and RAW have no name there.
_ENCODINGS = {
    FrameFormat.RGB24: "rgb8",
    FrameFormat.BGR24: "bgr8",
    FrameFormat.RGBA: "rgba8",
    FrameFormat.GRAY8: "mono8",
    FrameFormat.GRAY16: "mono16",
    FrameFormat.BAYER8: "bayer_rggb8",
    **{pixels: pixels.name.lower() for pixels in (FrameFormat.NV12, FrameFormat.YUV420P, FrameFormat.RAW)},
}
_FORMATS = {name: pixels for pixels, name in _ENCODINGS.items()}
_CHANNELS = {FrameFormat.RGB24: 3, FrameFormat.BGR24: 3, FrameFormat.RGBA: 4}
_PLANAR = (FrameFormat.NV12, FrameFormat.YUV420P)
_FLOAT = re.compile(r"32FC(\d{1,5})")
_ENCAPSULATION = b"\0\1\0\0"


class Picture(NamedTuple):
    """A frame as it is recorded.

    Attributes
    ----------
    layout : of its buffer.
    frame_id : 32 bits.
    timestamp_sof : nanoseconds; its seconds have 31 bits.
    data : the buffer, whole.
    """

    layout: Geometry
    frame_id: int
    timestamp_sof: int
    data: Any


class CdrWriter:
    """Writes CDR. Alignment counts from behind the encapsulation's four bytes.

    Attributes
    ----------
    data : what was written.
    """

    def __init__(self, frame_id: int, timestamp_sof: int) -> None:
        """Begin with the header of a picture."""
        self.data = bytearray(_ENCAPSULATION)
        self.put("i", timestamp_sof // NS_PER_S & 0x7FFFFFFF)
        self.put("I", timestamp_sof % NS_PER_S)
        self.text(str(frame_id))

    def put(self, form: str, value: int) -> None:
        """Write a number, as `struct` has it."""
        size = struct.calcsize(f"<{form}")
        self.data += bytes(-(len(self.data) - len(_ENCAPSULATION)) % size) + struct.pack(f"<{form}", value)

    def text(self, text: str) -> None:
        """Write a string."""
        self.sequence(text.encode() + b"\0")

    def sequence(self, data: Any) -> None:
        """Write bytes of any number."""
        view = memoryview(data).cast("B")
        self.put("I", len(view))
        self.data += view


class _CdrReader:
    """Reads what `CdrWriter` writes."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_ENCAPSULATION):
            raise ValueError("it is no picture in little-endian CDR")
        self._data = memoryview(data)[len(_ENCAPSULATION) :]
        self._place = 0

    def number(self, form: str) -> int:
        size = struct.calcsize(f"<{form}")
        start = self._place + -self._place % size
        self._place = start + size
        try:
            value: int = struct.unpack_from(f"<{form}", self._data, start)[0]
        except struct.error:
            raise ValueError("it is no picture: it ends too early") from None
        return value

    def sequence(self) -> memoryview[int]:
        size = self.number("I")
        found = self._data[self._place : self._place + size]
        if len(found) != size:
            raise ValueError("it is no picture: it ends too early")
        self._place += size
        return found

    def text(self) -> str:
        return bytes(self.sequence()).rstrip(b"\0").decode(errors="replace")


def image(picture: Picture) -> bytes:
    """Return a frame as a `sensor_msgs/msg/Image`."""
    layout = picture.layout
    cdr = CdrWriter(picture.frame_id, picture.timestamp_sof)
    cdr.put("I", layout.height)
    cdr.put("I", layout.width)
    cdr.text(f"32FC{layout.channels}" if layout.format is FrameFormat.FLOAT32 else _ENCODINGS[layout.format])
    cdr.put("B", 0)
    cdr.put("I", layout.stride)
    cdr.sequence(picture.data)
    return bytes(cdr.data)


def picture(data: bytes, uv_offset: int | None = None) -> Picture:
    """Return the frame that a `sensor_msgs/msg/Image` says.

    Parameters
    ----------
    data : the message.
    uv_offset : of the layout, if somebody knows it; None: the planes follow each other without gaps.

    Raises
    ------
    ValueError : it is none of ours, or does not say all of it; its layout is not possible.
    """
    cdr = _CdrReader(data)
    sof = cdr.number("I") * NS_PER_S + cdr.number("I")
    frame_id = cdr.text()
    height, width = cdr.number("I"), cdr.number("I")
    pixels, channels = _format(cdr.text())
    cdr.number("B")
    stride, content = cdr.number("I"), cdr.sequence()
    if uv_offset is None:
        uv_offset = stride * height if pixels in _PLANAR else 0
        if pixels in _PLANAR and len(content) != uv_offset * 3 // 2:
            raise ValueError("there are gaps between its planes, and recordings do not say where these are")
    layout = Geometry(pixels, width, height, stride, uv_offset, len(content), channels)
    layout.check("")
    return Picture(layout, int(frame_id) & 0xFFFFFFFF if frame_id.isdecimal() else 0, sof, content)


def _format(encoding: str) -> tuple[FrameFormat, int]:
    """Return what the pixels are, and their channels."""
    if found := _FLOAT.fullmatch(encoding):
        return FrameFormat.FLOAT32, int(found[1])
    if encoding not in _FORMATS:
        raise ValueError(f"frames have no pixels that ROS calls {encoding!r}")
    pixels = _FORMATS[encoding]
    return pixels, _CHANNELS.get(pixels, 1)
