"""Pixel formats: the layout of a picture in a buffer."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SIDE_PIXELS_MAX = 1 << 16  # pixels; products of larger numbers could overflow
BUFFER_BYTES_MAX = 1 << 32  # bytes of a buffer


class FrameFormat(enum.IntEnum):
    """Pixel format of a buffer. Rows are `stride` bytes apart, from the top. H and W are height and width of the frame.

    ============  =======================================================  ====================  =======
    format        bytes                                                    shape                 dtype
    ============  =======================================================  ====================  =======
    ``NV12``      H rows of Y; at `uv_offset` H/2 rows of U and V in turn  (3H/2, W)             uint8
    ``YUV420P``   H rows of Y; at `uv_offset` H/2 half rows of U, then V   (3H/2, W)             uint8
    ``RGB24``     red, green, blue                                         (H, W, 3)             uint8
    ``BGR24``     blue, green, red                                         (H, W, 3)             uint8
    ``RGBA``      red, green, blue, alpha                                  (H, W, 4)             uint8
    ``GRAY8``     brightness                                               (H, W)                uint8
    ``GRAY16``    brightness, in this machine's byte order                 (H, W)                uint16
    ``BAYER8``    one colour per pixel: red, green / green, blue           (H, W)                uint8
    ``FLOAT32``   any number of channels                                   (H, W, channels)      float32
    ``RAW``       bytes without a picture; W is their number               (W,)                  uint8
    ============  =======================================================  ====================  =======
    """

    NV12 = 0
    YUV420P = 1
    RGB24 = 2
    BGR24 = 3
    RGBA = 4
    GRAY8 = 5
    GRAY16 = 6
    BAYER8 = 7
    FLOAT32 = 8
    RAW = 9


_PLANAR_FORMATS = (FrameFormat.NV12, FrameFormat.YUV420P)
_CHANNEL_COUNTS = {FrameFormat.RGB24: 3, FrameFormat.BGR24: 3, FrameFormat.RGBA: 4}
_PIXEL_BYTES = {FrameFormat.GRAY16: 2, FrameFormat.FLOAT32: 4}


@dataclass(frozen=True, slots=True)
class Geometry:
    """Layout of a stream's buffers.

    Attributes:
        format: pixel format.
        width: width of the picture in pixels.
        height: height of the picture in pixels.
        stride: bytes from one row to the next.
        uv_offset: bytes from the start of the picture to the second plane; 0 for one plane.
        size: bytes of the picture.
        channels: number of channels of FLOAT32; otherwise given by the format.
    """

    format: FrameFormat
    width: int
    height: int
    stride: int
    uv_offset: int
    size: int
    channels: int = 1

    def check(self, endpoint: str) -> None:
        """Check that the picture fits its `size` bytes.

        Raises:
            InvalidValueError: the layout does not fit. The text shows the values.
        """
        bound = BUFFER_BYTES_MAX if self.format is FrameFormat.RAW else SIDE_PIXELS_MAX
        sides = 0 < self.width <= bound and 0 < self.height <= SIDE_PIXELS_MAX and 0 < self.channels <= SIDE_PIXELS_MAX
        if not (sides and 0 < self.size <= BUFFER_BYTES_MAX and self._row_bytes() <= self.stride <= BUFFER_BYTES_MAX):
            raise InvalidValueError(f"{self} is invalid: too small, too large, or its rows overlap", endpoint)
        if self.format in _PLANAR_FORMATS and (self.width % 2 or self.height % 2 or self.stride % 2):
            raise InvalidValueError(
                f"{self.format.name} of {self.width} x {self.height} pixels, stride {self.stride}: all must be even",
                endpoint,
            )
        if self.end() > self.size:
            raise InvalidValueError(f"{self}: the picture ends at byte {self.end()}", endpoint)

    def _row_bytes(self) -> int:
        return self.width * self.channels * _PIXEL_BYTES.get(self.format, 1)

    def end(self) -> int:
        """Return the number of bytes up to the end of the last row."""
        if self.format not in _PLANAR_FORMATS:
            return (self.height - 1) * self.stride + self._row_bytes()
        if self.uv_offset < self.stride * (self.height - 1) + self.width:
            return BUFFER_BYTES_MAX + 1  # the planes overlap
        return self.uv_offset + self.stride * (self.height // 2 - 1) + self.width

    def image(self, data: memoryview[int]) -> np.ndarray[Any, Any]:
        """Return the whole picture as one array over `data`, with the shape of its `FrameFormat`.

        Raises:
            InvalidValueError: a gap between the planes prevents a single array; use `planes`.
        """
        import numpy as np

        rows, row = self.height, self.width
        if self.format in _PLANAR_FORMATS:
            if self.uv_offset != self.stride * self.height or (
                self.format is FrameFormat.YUV420P and self.stride != self.width
            ):
                text = "planes have gaps, and are not a single array; use planes"
                raise InvalidValueError(f"{self.format.name}: {text}")
            rows = rows * 3 // 2
        kind: npt.DTypeLike = {FrameFormat.GRAY16: np.uint16, FrameFormat.FLOAT32: np.float32}.get(
            self.format, np.uint8
        )
        item = np.dtype(kind).itemsize
        if self.format is FrameFormat.RAW:
            return np.ndarray((row,), kind, data)
        if self.format in _CHANNEL_COUNTS or self.format is FrameFormat.FLOAT32:
            strides = (self.stride, self.channels * item, item)
            return np.ndarray((rows, row, self.channels), kind, data, 0, strides)
        return np.ndarray((rows, row), kind, data, 0, (self.stride, item))

    def planes(self, data: memoryview[int]) -> tuple[np.ndarray[Any, Any], ...]:
        """Return the planes as arrays over `data`.

        Returns:
            For NV12: Y (H, W) and UV (H/2, W/2, 2). YUV420P: Y (H, W), U and V (H/2, W/2). Other formats: the picture.
        """
        import numpy as np

        if self.format not in _PLANAR_FORMATS:
            return (self.image(data),)
        height, width, stride = self.height // 2, self.width // 2, self.stride
        luma = np.ndarray((self.height, self.width), np.uint8, data, 0, (stride, 1))
        if self.format is FrameFormat.NV12:
            return luma, np.ndarray((height, width, 2), np.uint8, data, self.uv_offset, (stride, 2, 1))
        half = stride // 2
        chroma = [
            np.ndarray((height, width), np.uint8, data, self.uv_offset + plane * half * height, (half, 1))
            for plane in (0, 1)
        ]
        return luma, *chroma


def geometry(pixels: FrameFormat, width: int, height: int, channels: int = 1) -> Geometry:
    """Return the layout without gaps."""
    width, height, channels = index(width), index(height), _CHANNEL_COUNTS.get(pixels, index(channels))
    stride = width * channels * _PIXEL_BYTES.get(pixels, 1)
    planar = pixels in _PLANAR_FORMATS
    size = stride * height * 3 // 2 if planar else stride * height
    return Geometry(pixels, width, height, stride, stride * height if planar else 0, size, channels)
