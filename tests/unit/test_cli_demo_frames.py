"""The demo's moving picture: what the load is can be seen in it."""

import numpy as np

from msgq.cli.demo.picture import LoadPicture
from visionipc import FrameFormat
from visionipc.formats import geometry

WIDTH, HEIGHT = 64, 40
STEP = 8


def random_faults(picture: LoadPicture) -> tuple[np.ndarray, np.ndarray]:
    layout = geometry(FrameFormat.NV12, WIDTH, HEIGHT)
    luma, chroma = layout.planes(memoryview(bytearray(layout.size)))
    picture.copy_planes(luma, chroma)
    return luma, chroma


def picture_of_constant_load(*percent: float, times: int = 1) -> LoadPicture:
    picture = LoadPicture(WIDTH, HEIGHT)
    for _ in range(times):
        picture.append_columns(percent)
    return picture


def test_demo_picture_bar_height_equals_core_load() -> None:
    luma, _ = random_faults(picture_of_constant_load(50.0))
    newest = luma[:, -1]
    assert (newest[: HEIGHT // 2 - 1] == 16).all()
    assert (newest[HEIGHT // 2 + 1 :] > 90).all()


def test_demo_picture_has_one_band_per_core() -> None:
    luma, _ = random_faults(picture_of_constant_load(0.0, 100.0))
    assert (luma[: HEIGHT // 2, -1] == 16).sum() >= HEIGHT // 2 - 1
    assert (luma[HEIGHT // 2 :, -1] > 100).all()


def test_demo_picture_shows_busy_core_red_and_idle_core_blue() -> None:
    _, busy = random_faults(picture_of_constant_load(100.0))
    _, idle = random_faults(picture_of_constant_load(10.0))
    (blue, red), (cold_blue, cold_red) = busy[-1, -1], idle[-1, -1]
    assert red > 128 > blue
    assert cold_red < 128 < cold_blue


def test_demo_picture_scrolls_left_across_buffer_end() -> None:
    picture = picture_of_constant_load(0.0, times=2 * WIDTH // STEP + 3)
    before, _ = random_faults(picture)
    for load in (100.0, 100.0):
        picture.append_columns([load])
    after, _ = random_faults(picture)
    assert (after[:, : -2 * STEP] == before[:, 2 * STEP :]).all()
    assert (after[:, -2 * STEP :] != before[:, -2 * STEP :]).any()


def test_demo_picture_accepts_change_of_core_count() -> None:
    picture = picture_of_constant_load(100.0, 100.0)
    picture.append_columns([100.0])
    luma, _ = random_faults(picture)
    assert (luma[:, -1] > 100).all()
