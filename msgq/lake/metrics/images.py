"""Detection of pictures in payloads, and thumbnails."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from visionipc.image_messages import fields

COMPRESSED_IMAGE_SCHEMA = "sensor_msgs/msg/CompressedImage"  # a JPEG with a head before it, as recorders write frames
RAW_IMAGE_SCHEMA = "sensor_msgs/msg/Image"  # pixels with a head before them
IMAGE_MAGICS = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

#: Formats by name in ROS or visionipc: lines per line of the picture, samples per pixel, OpenCV's conversion to BGR.
_RAW_FORMATS: dict[str, tuple[float, int, str | None]] = {
    "rgb8": (1, 3, "COLOR_RGB2BGR"),
    "bgr8": (1, 3, None),
    "rgba8": (1, 4, "COLOR_RGBA2BGR"),
    "mono8": (1, 1, "COLOR_GRAY2BGR"),
    "nv12": (1.5, 1, "COLOR_YUV2BGR_NV12"),
}


def detect_pictures(data: pa.ChunkedArray, schema: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the picture format of each payload, from its first bytes or its schema."""
    heads = pc.binary_slice(data, 0, max(map(len, IMAGE_MAGICS.values())))
    jpeg = pc.or_kleene(
        pc.starts_with(heads, IMAGE_MAGICS["jpeg"]), pc.equal(schema.cast(pa.string()), COMPRESSED_IMAGE_SCHEMA)
    )
    kind: pa.ChunkedArray = pc.if_else(
        jpeg, "jpeg", pc.if_else(pc.equal(schema.cast(pa.string()), RAW_IMAGE_SCHEMA), "raw", None)
    )
    return pc.if_else(pc.starts_with(heads, IMAGE_MAGICS["png"]), "png", kind)


def make_thumbnail(picture: bytes, width: int = 160) -> bytes | None:
    """Return a picture as a JPEG of at most `width` pixels width; None: unreadable. Needs OpenCV.

    `picture`: payload of a message, with or without a header. Supported raw formats: rgb8, bgr8, rgba8, mono8 and nv12.
    """
    import cv2

    image = _decode_pixels(picture)
    if image is None:
        return None
    scale = min(1.0, width / image.shape[1])
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    good, jpeg = cv2.imencode(".jpg", cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return jpeg.tobytes() if good else None


def _decode_pixels(picture: bytes) -> Any:
    """Return an array of shape (height, width, 3) in BGR order; None: unknown format."""
    import cv2
    import numpy as np

    try:
        image = fields(picture)
        width = image["width"]
        rows, samples, conversion = _RAW_FORMATS[image["encoding"]]
        lines = np.frombuffer(image["data"], np.uint8).reshape(-1, image["step"])
        lines = lines[: int(image["height"] * rows), : width * samples]
        pixels = np.ascontiguousarray(lines).reshape(-1, width, samples)
        return pixels if conversion is None else cv2.cvtColor(pixels, getattr(cv2, conversion))
    except (KeyError, ValueError, cv2.error):  # it is none of these
        begins = [at for magic in IMAGE_MAGICS.values() if (at := picture.find(magic)) >= 0]
    return cv2.imdecode(np.frombuffer(picture, np.uint8, offset=min(begins)), cv2.IMREAD_COLOR) if begins else None
