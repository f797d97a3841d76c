"""Layout and arrays of a picture, for frames and clients."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from visionipc.formats import Geometry

if TYPE_CHECKING:
    import numpy as np

    from msgq.impl.base.core import MappedView


def prepare() -> None:
    """Import the array libraries now, because the import takes as long as many frames."""
    global _view_as_array
    import numpy as np

    def view_as_array(view: MappedView) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.asarray(memoryview(view))  # memoryview, for asarray would hide why a view has no bytes

    _view_as_array = view_as_array


def _view_as_array(view: MappedView) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return an array over a view's bytes, which keeps the view. Replaced after the import of NumPy."""
    prepare()
    return _view_as_array(view)


class Picture:
    """Base of a picture. Writable in a server's frame, read-only in a received frame."""

    __slots__ = ()

    @property
    @abstractmethod
    def view(self) -> MappedView:
        """Bytes of the picture as a buffer."""

    @abstractmethod
    def _valid_layout(self) -> Geometry:
        """Return a layout that fits the bytes."""

    @property
    def data(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """All bytes, shape (buffer_len,), uint8."""
        return _view_as_array(self.view)

    @property
    def image(self) -> np.ndarray[Any, Any]:
        """Picture as one array, with the shape of its `FrameFormat`.

        Raises
        ------
        InvalidValueError : the planes have gaps; use `planes`. Also the errors of `planes`.
        """
        return self._valid_layout().image(memoryview(self.view))

    @property
    def planes(self) -> tuple[np.ndarray[Any, Any], ...]:
        """Planes of the picture: Y and UV for NV12; Y, U and V for YUV420P; otherwise the picture.

        Raises
        ------
        InvalidValueError : a stock server sent a layout that does not fit its bytes.
        """
        return self._valid_layout().planes(memoryview(self.view))
