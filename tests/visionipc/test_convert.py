"""Pictures as RGB, checked against arithmetic that uses neither of the libraries."""

from __future__ import annotations

import struct
import sys
import zlib

import numpy as np
import pytest

from msgq.errors import InvalidValueError, MissingLibraryError
from visionipc import FrameFormat, Geometry, to_rgb
from visionipc.convert import encode_png
from visionipc.formats import geometry

LIBRARIES = {"cv2": "av", "av": "cv2"}  # and the one that must be hidden to have it used
NEEDS_LIBRARY = (FrameFormat.NV12, FrameFormat.YUV420P, FrameFormat.BAYER8)
WIDTH, HEIGHT = 48, 32


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One of the libraries, alone."""
    pytest.importorskip(request.param)
    monkeypatch.setitem(sys.modules, LIBRARIES[request.param], None)
    return str(request.param)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, None)


def smooth_planes() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Y, and U and V at half size, of a picture without edges: how a library interpolates makes no difference."""
    rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
    luma = (60 + 2 * columns + rows).astype(np.uint8)
    u = (100 + columns[::2, ::2] // 2).astype(np.uint8)
    v = (150 - rows[::2, ::2] // 2).astype(np.uint8)
    return luma, u, v


def bt601(luma: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """RGB of video levels, by the formula of ITU-R BT.601."""
    y = 255 / 219 * (luma.astype(float) - 16)
    cb, cr = ((plane.repeat(2, 0).repeat(2, 1).astype(float) - 128) * 255 / 224 for plane in (u, v))
    red, blue = y + 1.402 * cr, y + 1.772 * cb
    green = (y - 0.299 * red - 0.114 * blue) / 0.587
    return np.stack([red, green, blue], axis=2).clip(0, 255)


def buffer_of(layout: Geometry, *planes: np.ndarray) -> bytearray:
    """A buffer of rubbish, with the planes in their places."""
    data = bytearray(b"\xa5" * layout.size)
    for place, plane in zip(layout.planes(memoryview(data)), planes, strict=True):
        place[:] = plane
    return data


def planar(pixels: FrameFormat, stride: int, gap: int) -> tuple[Geometry, bytearray]:
    luma, u, v = smooth_planes()
    offset = stride * HEIGHT + gap
    layout = Geometry(pixels, WIDTH, HEIGHT, stride, offset, offset + stride * HEIGHT // 2)
    layout.check("")
    chroma = [np.stack([u, v], axis=2)] if pixels is FrameFormat.NV12 else [u, v]
    return layout, buffer_of(layout, luma, *chroma)


@pytest.mark.parametrize("pixels", [FrameFormat.NV12, FrameFormat.YUV420P])
@pytest.mark.parametrize(("stride", "gap"), [(WIDTH, 0), (WIDTH + 32, 0), (WIDTH + 6, 50)])
def test_yuv_is_converted_to_rgb_by_bt601(library: str, pixels: FrameFormat, stride: int, gap: int) -> None:
    layout, data = planar(pixels, stride, gap)
    rgb = to_rgb(data, layout)
    assert rgb.shape == (HEIGHT, WIDTH, 3)
    assert rgb.dtype == np.uint8
    assert np.abs(rgb - bt601(*smooth_planes())).max() <= 5


@pytest.mark.parametrize("stride", [WIDTH, WIDTH + 10])
def test_bayer_conversion_takes_red_from_first_pixel(library: str, stride: int) -> None:
    layout = Geometry(FrameFormat.BAYER8, WIDTH, HEIGHT, stride, 0, stride * HEIGHT)
    mosaic = np.zeros((HEIGHT, WIDTH), np.uint8)
    red, green, blue = 200, 100, 30
    mosaic[::2, ::2], mosaic[1::2, 1::2] = red, blue
    mosaic[::2, 1::2] = mosaic[1::2, ::2] = green
    rgb = to_rgb(buffer_of(layout, mosaic), layout)
    assert rgb.shape == (HEIGHT, WIDTH, 3)
    assert (rgb[2:-2, 2:-2] == (red, green, blue)).all()


@pytest.mark.parametrize(
    ("pixels", "order"),
    [(FrameFormat.RGB24, (0, 1, 2)), (FrameFormat.BGR24, (2, 1, 0)), (FrameFormat.RGBA, (0, 1, 2))],
)
@pytest.mark.parametrize("padding", [0, 7])
@pytest.mark.usefixtures("no_library")
def test_rgb_conversion_orders_channels(pixels: FrameFormat, order: tuple[int, ...], padding: int) -> None:
    plain = geometry(pixels, WIDTH, HEIGHT)
    stride = plain.stride + padding
    layout = Geometry(pixels, WIDTH, HEIGHT, stride, 0, stride * HEIGHT, plain.channels)
    picture = np.random.default_rng(1).integers(0, 256, (HEIGHT, WIDTH, plain.channels), np.uint8)
    rgb = to_rgb(buffer_of(layout, picture), layout)
    for channel, source in enumerate(order):
        assert (rgb[:, :, channel] == picture[:, :, source]).all()


@pytest.mark.parametrize("padding", [0, 6])
@pytest.mark.usefixtures("no_library")
def test_grey_conversion_gives_three_equal_channels(padding: int) -> None:
    grey = np.random.default_rng(2).integers(0, 1 << 16, (HEIGHT, WIDTH), np.uint16)
    wide = Geometry(FrameFormat.GRAY16, WIDTH, HEIGHT, 2 * WIDTH + padding, 0, (2 * WIDTH + padding) * HEIGHT)
    narrow = Geometry(FrameFormat.GRAY8, WIDTH, HEIGHT, WIDTH + padding, 0, (WIDTH + padding) * HEIGHT)
    expected = np.stack([grey // 256] * 3, axis=2)
    assert (to_rgb(buffer_of(wide, grey), wide) == expected).all()
    assert (to_rgb(buffer_of(narrow, (grey // 256).astype(np.uint8)), narrow) == expected).all()


@pytest.mark.parametrize("pixels", [one for one in FrameFormat if one not in (FrameFormat.FLOAT32, FrameFormat.RAW)])
def test_conversion_result_is_independent_copy(pixels: FrameFormat) -> None:
    layout = geometry(pixels, WIDTH, HEIGHT)
    data = bytearray(layout.size)
    rgb = to_rgb(memoryview(data).toreadonly(), layout)
    before = rgb.copy()
    data[:] = b"\xff" * layout.size
    assert (rgb == before).all()
    assert rgb.flags.writeable
    assert rgb.flags.c_contiguous


@pytest.mark.parametrize("pixels", NEEDS_LIBRARY)
@pytest.mark.usefixtures("no_library")
def test_conversion_without_library_names_package(pixels: FrameFormat) -> None:
    layout = geometry(pixels, WIDTH, HEIGHT)
    with pytest.raises(MissingLibraryError, match=r"pip install 'msgq-bus\[frames\]'"):
        to_rgb(bytes(layout.size), layout)


@pytest.mark.parametrize(("pixels", "width", "height"), [(FrameFormat.FLOAT32, 4, 4), (FrameFormat.RAW, 64, 1)])
def test_conversion_of_format_without_colours_is_refused(pixels: FrameFormat, width: int, height: int) -> None:
    layout = geometry(pixels, width, height)
    with pytest.raises(InvalidValueError, match=pixels.name):
        to_rgb(bytes(layout.size), layout)


def test_conversion_of_too_few_bytes_is_refused() -> None:
    layout = geometry(FrameFormat.RGB24, 4, 4)
    with pytest.raises(InvalidValueError, match="47 bytes"):
        to_rgb(bytes(47), layout)


def png_pixels(data: bytes) -> np.ndarray:
    """Decode a PNG of 8-bit RGB, as its specification says; filters 0 to 4."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height, depth, colour = struct.unpack(">IIBB", data[16:26])
    assert (depth, colour) == (8, 2)
    at, body = 8, b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            body += data[at + 8 : at + 8 + size]
        at += size + 12
    raw, rows = zlib.decompress(body), np.zeros((height + 1, width * 3 + 3), int)
    for y in range(height):
        kind = raw[y * (width * 3 + 1)]
        line = raw[y * (width * 3 + 1) + 1 : (y + 1) * (width * 3 + 1)]
        above, here = rows[y], rows[y + 1]
        for x in range(width * 3):
            left, up, corner = here[x], above[x + 3], above[x]
            nearest = min((left, up, corner), key=lambda value: abs(left + up - corner - value))
            here[x + 3] = (line[x] + (0, left, up, (left + up) // 2, nearest)[kind]) % 256
    return rows[1:, 3:].reshape(height, width, 3)


def test_png_contains_picture(library: str) -> None:
    picture = np.random.default_rng(3).integers(0, 256, (5, 7, 3), np.uint8)
    assert (png_pixels(encode_png(picture)) == picture).all()


@pytest.mark.usefixtures("no_library")
def test_png_without_library_raises_missing_library_error() -> None:
    with pytest.raises(MissingLibraryError, match="PNG"):
        encode_png(np.zeros((2, 2, 3), np.uint8))
