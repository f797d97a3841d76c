"""What frames and clients tell of a picture: its layout, and its bytes as arrays."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from visionipc.formats import Geometry

if TYPE_CHECKING:
    import numpy as np

    from msgq.impl.base.core import MappedView


def prepare() -> None:
    """Import what arrays are made with: that takes as long as many frames, so it should not happen at one of them."""
    global _view_as_array
    import numpy as np

    def view_as_array(view: MappedView) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.asarray(memoryview(view))  # memoryview, for asarray would hide why a view has no bytes

    _view_as_array = view_as_array


def _view_as_array(view: MappedView) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return an array of a view's bytes, which keeps it; replaced when NumPy is there."""
    prepare()
    return _view_as_array(view)


class Picture:
    """Is a picture: writable in a frame of a server, read-only in a frame that was received."""

    __slots__ = ()

    @property
    @abstractmethod
    def view(self) -> MappedView:
        """The picture's bytes, as a buffer."""

    @abstractmethod
    def _valid_layout(self) -> Geometry:
        """Return a layout that the bytes can have."""

    @property
    def data(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All bytes, shape (buffer_len,), uint8."""
        return _view_as_array(self.view)

    @property
    def image(self) -> np.ndarray[Any, Any]:
        """The picture as one array, shaped as `FrameFormat` says.

        Raises
        ------
        InvalidValueError : there are gaps between its planes; see `planes`. Or as there.
        """
        return self._valid_layout().image(memoryview(self.view))

    @property
    def planes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """The picture's planes: Y and UV for NV12; Y, U and V for YUV420P; else the one picture.

        Raises
        ------
        InvalidValueError : a stock server told of a layout that its bytes cannot have.
        """
        return self._valid_layout().planes(memoryview(self.view))
