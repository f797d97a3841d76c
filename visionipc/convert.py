"""Conversion of pictures to RGB and PNG.

NumPy converts simple formats. OpenCV or else PyAV converts the others; both are in the extra `frames`, and imported at
their first use. Luma and chroma are interpreted as BT.601 video (16 to 235), the default of both libraries.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidValueError, MissingLibraryError
from visionipc.formats import FrameFormat, Geometry

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from typing_extensions import Buffer

_AV_FORMATS = {FrameFormat.NV12: "nv12", FrameFormat.YUV420P: "yuv420p", FrameFormat.BAYER8: "bayer_rggb8"}


def to_rgb(data: Buffer, geometry: Geometry) -> npt.NDArray[np.uint8]:
    """Return a picture as RGB.

    Args:
        data: contiguous bytes of the picture, at least `geometry.size`.
        geometry: layout of the picture.

    Returns:
        A copy, shape (H, W, 3), uint8. Grey becomes three equal channels (for GRAY16 the upper 8 bits). Alpha is
        omitted.

    Raises:
        MissingLibraryError: NV12, YUV420P and BAYER8 need OpenCV or PyAV, and neither is installed.
        InvalidValueError: the format is FLOAT32 or RAW, which have no colours, or `data` is too short.
    """
    import numpy as np

    pixels = geometry.format
    view = memoryview(data).cast("B")
    if len(view) < geometry.size:
        raise InvalidValueError(f"picture has {len(view)} bytes, but its geometry needs {geometry.size}")
    if pixels in _AV_FORMATS:
        return _convert_by_library(geometry.planes(view), pixels)
    image = geometry.image(view)
    match pixels:
        case FrameFormat.RGB24 | FrameFormat.RGBA:
            return image[:, :, :3].copy()
        case FrameFormat.BGR24:
            return image[:, :, ::-1].copy()
        case FrameFormat.GRAY8 | FrameFormat.GRAY16:
            grey = image if pixels is FrameFormat.GRAY8 else (image >> 8).astype(np.uint8)
            return np.repeat(grey[:, :, np.newaxis], 3, axis=2)
    raise InvalidValueError(
        f"format {pixels.name} has no colours, and cannot be converted; read its values from frame.array"
    )


def encode_png(rgb: npt.NDArray[np.uint8]) -> bytes:
    """Return a picture of shape (H, W, 3) as a PNG file.

    Raises:
        MissingLibraryError: neither OpenCV nor PyAV is installed.
    """
    library = _import_image_library("PNG")
    if library.__name__ == "cv2":
        _, data = library.imencode(".png", library.cvtColor(rgb, library.COLOR_RGB2BGR))
        return bytes(data)
    encoder = library.CodecContext.create("png", "w")
    encoder.height, encoder.width, _ = rgb.shape
    encoder.pix_fmt, encoder.framerate = "rgb24", 1
    return b"".join(map(bytes, encoder.encode(library.VideoFrame.from_ndarray(rgb, "rgb24"))))


def _import_image_library(task: str) -> Any:
    for name in ("cv2", "av"):
        try:
            return import_module(name)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
    text = f"{task} needs OpenCV (opencv-python-headless) or PyAV (av), and neither is installed"
    raise MissingLibraryError(f"{text}: pip install 'msgq-bus[frames]'")


def _convert_by_library(planes: tuple[npt.NDArray[np.uint8], ...], pixels: FrameFormat) -> npt.NDArray[np.uint8]:
    library = _import_image_library(f"{pixels.name} as RGB")
    if library.__name__ == "av":
        frame = library.VideoFrame.from_ndarray(_pack_rows(planes), _AV_FORMATS[pixels])
        rgb: npt.NDArray[np.uint8] = frame.to_ndarray(format="rgb24")
        return rgb
    if pixels is FrameFormat.NV12:
        rgb = library.cvtColorTwoPlane(*planes, library.COLOR_YUV2RGB_NV12)
    elif pixels is FrameFormat.YUV420P:
        rgb = library.cvtColor(_pack_rows(planes), library.COLOR_YUV2RGB_I420)
    else:  # OpenCV names a pattern by its second row, from the second pixel: blue, green
        rgb = library.cvtColor(planes[0], library.COLOR_BayerBG2RGB)
    return rgb


def _pack_rows(planes: tuple[npt.NDArray[np.uint8], ...]) -> npt.NDArray[np.uint8]:
    """Return the planes without gaps as one array, (rows, W) uint8, as libraries require."""
    import numpy as np

    width = planes[0].shape[1]
    return np.concatenate([plane.reshape(-1) for plane in planes]).reshape(-1, width)
