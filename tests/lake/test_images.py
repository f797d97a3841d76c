"""Pictures made small, whatever they are in messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("deltalake")
pytest.importorskip("cv2")
import cv2

from msgq.lake.metrics.images import make_thumbnail
from visionipc import FrameFormat, Geometry
from visionipc.image_messages import Picture, image


def decode_picture(picture: bytes, width: int = 160) -> Any:
    small = make_thumbnail(picture, width)
    return None if small is None else cv2.imdecode(np.frombuffer(small, np.uint8), cv2.IMREAD_COLOR)


def test_picture_is_scaled_down_to_given_width() -> None:
    picture = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    assert decode_picture(picture, 80).shape == (60, 80, 3)
    assert decode_picture(b"a head" + picture, 1000).shape == (240, 320, 3)


def test_unreadable_picture_is_none() -> None:
    picture = cv2.imencode(".png", np.zeros((240, 320, 3), np.uint8))[1].tobytes()
    assert decode_picture(picture[:40]) is None
    assert decode_picture(b"text") is None


@pytest.mark.parametrize(
    ("kind", "shape", "color"),
    [("RGB24", (60, 300), (255, 0, 0)), ("NV12", (90, 128), None), ("GRAY8", (60, 80), (200, 200, 200))],
)
def test_recorded_raw_frames_are_decoded(kind: str, shape: Any, color: Any) -> None:
    pixels = np.full(shape, 200, np.uint8)
    if kind == "RGB24":
        pixels[:, :240] = np.tile([255, 0, 0], 80)  # behind it the line is padded
    layout = Geometry(FrameFormat[kind], 80, 60, shape[1], 60 * shape[1] if kind == "NV12" else 0, pixels.nbytes)
    picture = decode_picture(image(Picture(layout, 123, 5, pixels)))
    assert picture.shape == (60, 80, 3)
    assert color is None or np.abs(picture[30, 40, ::-1].astype(int) - color).max() < 5
