"""The load of the machine as a picture: one band per core, the newest column on the right."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

_COLUMN_WIDTH = 8  # pixels that the picture moves with each frame
_SMOOTHING_FACTOR = 0.8  # the kernel counts CPU time in ticks of 10 ms: three or four in the time of a frame
_BLACK, _IDLE, _BUSY = 16, 70, 125  # luma; a brighter red would be yellow
_GREY, _COLOUR = 128, 100  # chroma, and its largest distance from grey

_PlaneArray = npt.NDArray[np.uint8]


class LoadPicture:
    """A picture in NV12: a plane of luma, and a plane of chroma with half of its resolution."""

    def __init__(self, width: int, height: int) -> None:
        self._luma = np.full((height, width), _BLACK, np.uint8)
        self._chroma = np.full((height // 2, width // 2, 2), _GREY, np.uint8)
        self._load = np.zeros(0)

    def append_column(self, percent: Sequence[float]) -> None:
        """Move the picture to the left, and append a column for the current load of each core."""
        now = np.asarray(percent, float) / 100
        before = self._load if self._load.shape == now.shape else now
        self._load = _SMOOTHING_FACTOR * before + (1 - _SMOOTHING_FACTOR) * now
        for plane, column, width in zip(
            (self._luma, self._chroma), self._make_column(), (_COLUMN_WIDTH, _COLUMN_WIDTH // 2), strict=True
        ):
            plane[:, :-width] = plane[:, width:]
            plane[:, -width:] = column[:, np.newaxis]

    def _make_column(self) -> tuple[_PlaneArray, _PlaneArray]:
        """Return luma and chroma of one column: in each band a bar with the height of the load, blue to red."""
        position = np.arange(len(self._luma)) * len(self._load) / len(self._luma)
        load = self._load[position.astype(int)]
        bar = 1 - position % 1 <= load
        luma = np.where(bar, _IDLE + (_BUSY - _IDLE) * load, _BLACK)
        heat = np.where(bar, load, 0.5)[::2]
        chroma = _GREY + _COLOUR * np.stack([0.5 - heat, heat - 0.5], axis=1)
        return luma.astype(np.uint8), chroma.astype(np.uint8)

    def copy_planes(self, luma: _PlaneArray, chroma: _PlaneArray) -> None:
        """Copy the picture into the planes of a frame."""
        luma[:] = self._luma
        chroma[:] = self._chroma
