"""A frame as a client gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from msgq.errors import EndpointClosedError
from msgq.impl.base.core import MappedView
from visionipc.formats import FrameFormat, Geometry
from visionipc.impl.core import Frame
from visionipc.picture import Picture

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class VisionBuf(Picture, Frame):
    """One frame. Read-only, and from a server of this library unchanged for as long as any view of it lives.

    The frame's buffer goes back to the server when the frame and all arrays made of it are gone; with a ``with`` block
    (or `release`) the frame's own hold ends there. Arrays may be used in any thread, and outlive the client and the
    server. After a fork they are the parent's: in the child they may change.

    Attributes
    ----------
    width, height, stride, uv_offset, format : of the picture, see `FrameFormat`; pixels and bytes.
    data, image, planes : its bytes as arrays.
    idx : number of the buffer.
    fd : descriptor of its memory, open as long as the client is connected; not to be closed.
    frame_id, timestamp_sof, timestamp_eof, valid_frame : as sent. Timestamps are nanoseconds, by convention of
        CLOCK_BOOTTIME; see `VisionIpcServer`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        state = "" if self._view is not None else ", released"
        return f"<VisionBuf {self.frame_id}, {self.format.name} {self.width} x {self.height}{state}>"

    def _valid_layout(self) -> Geometry:
        if not self.leased:  # stock's may be anything; that of ours was checked when the client connected
            self._record.geometry.check("")
        return self._record.geometry

    @property
    def width(self) -> int:
        """Pixels."""
        return self._record.geometry.width

    @property
    def height(self) -> int:
        """Pixels."""
        return self._record.geometry.height

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return self._record.geometry.stride

    @property
    def uv_offset(self) -> int:
        """Bytes from the start to the second plane."""
        return self._record.geometry.uv_offset

    @property
    def format(self) -> FrameFormat:
        """Of the pixels; NV12 from a stock server."""
        return self._record.geometry.format

    @property
    def idx(self) -> int:
        """Number of the buffer."""
        return self._record.index

    @property
    def view(self) -> MappedView:
        """The picture's bytes, as a read-only buffer.

        Raises
        ------
        EndpointClosedError : the frame was released.
        """
        if self._view is None:
            raise EndpointClosedError(f"frame {self.frame_id} was released; take arrays from it before that")
        return self._view

    def as_array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Return `data`, under stock's name."""
        return self.data

    def to_rgb(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the picture as RGB, shape (H, W, 3), uint8; see `visionipc.convert.to_rgb`.

        Raises
        ------
        MissingLibraryError : the format needs OpenCV or PyAV, and neither is installed.
        InvalidValueError : FLOAT32 and RAW have no colours.
        """
        from visionipc.convert import to_rgb

        return to_rgb(self.view, self._record.geometry)

    def valid(self) -> bool:
        """Return whether the buffer still holds this frame. Always, while it is held, from a server of this library.

        A stock server writes into buffers that are in use: copy what you need, then ask, then trust the copy.
        """
        # In this order: reading what the server has cut off is what tells of it.
        return self.leased or (self._region.read_u64(len(self.view)) == self.frame_id and not self._region.lost)

    def release(self) -> None:
        """Let go of the buffer, apart from the arrays that still look at it. Twice does nothing."""
        self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
