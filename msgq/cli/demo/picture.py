"""Frame stream of the demo: the machine's load as a moving picture, and a client that measures the frames."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from msgq.cli.demo import plan
from msgq.cli.demo.meter import DemoMeter
from msgq.common import shm_paths
from msgq.common.rate_loop import rate_loop
from msgq.impl.ring.core import unlink_topic
from visionipc import VisionIpcClient, VisionIpcServer, wire

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.rate_loop import StopSignal

_BUFFER_COUNT = 4
_STEP_COLUMNS = 8  # columns that the picture moves with each frame
_SMOOTHING_FACTOR = 0.8  # the kernel counts CPU time in ticks of 10 ms: three or four in the time of a frame
_BLACK, _IDLE, _BUSY = 16, 70, 125  # luma; a brighter red would be yellow
_GREY, _COLOUR = 128, 100  # chroma, and how far it goes


class LoadPicture:
    """Load of each core over the last seconds: one band per core, the newest column on the right."""

    def __init__(self, width: int, height: int) -> None:
        import numpy as np

        self._width, self._next_column = width, 0
        # Twice as wide as the picture, and written twice, a width apart: some window of it is always the whole picture.
        self._luma = np.full((height, 2 * width), _BLACK, np.uint8)
        self._chroma = np.full((height // 2, width, 2), _GREY, np.uint8)
        self._load = np.zeros(0)

    def append_columns(self, percent: Sequence[float]) -> None:
        """Append columns for the current load of each core."""
        import numpy as np

        now = np.asarray(percent, float) / 100
        before = self._load if self._load.shape == now.shape else now
        self._load = _SMOOTHING_FACTOR * before + (1 - _SMOOTHING_FACTOR) * now
        luma, chroma = self._make_column(self._load)
        for at in (self._next_column, self._next_column + self._width):
            self._luma[:, at : at + _STEP_COLUMNS] = luma[:, np.newaxis]
            self._chroma[:, at // 2 : (at + _STEP_COLUMNS) // 2] = chroma[:, np.newaxis]
        self._next_column = (self._next_column + _STEP_COLUMNS) % self._width

    def _make_column(self, load: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Return one column: in each band a bar with the height of the load, blue to red."""
        import numpy as np

        height = len(self._luma)
        band = height / len(load)
        core = (np.arange(height) / band).astype(int)
        above_floor = 1 - (np.arange(height) / band - core)
        bar = above_floor <= load[core]
        luma = np.where(bar, _IDLE + (_BUSY - _IDLE) * load[core], _BLACK)
        heat = np.where(bar, load[core], 0.5)[::2]
        chroma = _GREY + _COLOUR * np.stack([0.5 - heat, heat - 0.5], axis=1)
        return luma.astype(np.uint8), chroma.astype(np.uint8)

    def copy_planes(self, luma: npt.NDArray[np.uint8], chroma: npt.NDArray[np.uint8]) -> None:
        """Copy the picture into the planes of a frame."""
        luma[:] = self._luma[:, self._next_column : self._next_column + self._width]
        chroma[:] = self._chroma[:, self._next_column // 2 : (self._next_column + self._width) // 2]


def publish_picture(run: str, topic: plan.DemoTopic, stop: StopSignal, sample: Callable[[], Sequence[float]]) -> None:
    """Serve the picture at the topic's rate, after all viewers are present."""
    width, height = plan.PICTURE_SIZE
    picture = LoadPicture(width, height)
    viewers = [subscriber for subscriber in plan.DEMO_SUBSCRIBERS.values() if topic.name in subscriber.topics]
    with VisionIpcServer(plan.make_server_name(run, topic.name)) as server:
        server.create_buffers(plan.STREAM_TYPE, _BUFFER_COUNT, width, height)
        server.start_listener()
        while len(server.stats(plan.STREAM_TYPE).clients) < len(viewers) and not stop.wait(0.02):
            pass
        for _ in rate_loop(topic.rate_hz, stop):
            picture.append_columns(sample())
            with server.frame(plan.STREAM_TYPE) as frame:
                picture.copy_planes(*frame.planes)


class PictureViewer:
    """A client of one run's picture that counts and measures the frames."""

    def __init__(self, run: str, topic: plan.DemoTopic) -> None:
        self._client = VisionIpcClient(plan.make_server_name(run, topic.name), plan.STREAM_TYPE, False)
        self._client.connect(False)  # without a server yet, so that all announced frames count

    @property
    def lost(self) -> int | None:
        """Number of frames that were published and not received."""
        return self._client.lost

    def receive(self, meter: DemoMeter, timeout_ms: float) -> bool:
        """Receive one frame. Return False at the timeout."""
        if not self._client.connections and not self._client.connect(False):
            time.sleep(timeout_ms / 1000)
            return False
        frame = self._client.recv(timeout_ms)
        if frame is None:
            return False
        with frame:
            now_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            meter.count_message((frame.timestamp_eof, frame.frame_id, 1), len(frame.data), now_ns)
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()


def remove_leftovers(run: str, topic: plan.DemoTopic) -> None:
    """Remove the files of the stream in /dev/shm, and in /tmp if the server was killed."""
    unlink_topic(plan.make_run_endpoint(run, topic.name))
    name = plan.make_server_name(run, topic.name)
    socket = wire.socket_path(name)
    for path in (socket, shm_paths.create_frames_lock_path(socket, name)):
        Path(path).unlink(missing_ok=True)
