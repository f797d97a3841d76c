"""Frames as clients receive them."""

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
    """One frame, read-only. A frame of a server of this library stays unchanged while any view of it exists.

    The buffer returns to the server when the frame and all its arrays are deleted. The end of a ``with`` block, or
    `release`, ends the frame's own hold. Any thread may use the arrays, also after the end of client and server. After
    a fork, the arrays belong to the parent: in the child, their content may change.

    Attributes
    ----------
    width, height, stride, uv_offset, format : layout of the picture in pixels and bytes, see `FrameFormat`.
    data, image, planes : bytes of the picture as arrays.
    idx : number of the buffer.
    fd : descriptor of the buffer's memory, open while the client is connected. Do not close it.
    frame_id, timestamp_sof, timestamp_eof, valid_frame : values of the sender. Timestamps are nanoseconds, by
        convention of CLOCK_BOOTTIME; see `VisionIpcServer`.
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
        """Width of the picture in pixels."""
        return self._record.geometry.width

    @property
    def height(self) -> int:
        """Height of the picture in pixels."""
        return self._record.geometry.height

    @property
    def stride(self) -> int:
        """Bytes from one row to the next."""
        return self._record.geometry.stride

    @property
    def uv_offset(self) -> int:
        """Bytes from the start of the picture to the second plane."""
        return self._record.geometry.uv_offset

    @property
    def format(self) -> FrameFormat:
        """Pixel format; NV12 for a stock server."""
        return self._record.geometry.format

    @property
    def idx(self) -> int:
        """Number of the buffer."""
        return self._record.index

    @property
    def view(self) -> MappedView:
        """Bytes of the picture as a read-only buffer.

        Raises
        ------
        EndpointClosedError : the frame was released.
        """
        if self._view is None:
            raise EndpointClosedError(f"frame {self.frame_id} was released; take arrays before the release")
        return self._view

    def as_array(self) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """Return `data` (stock's name)."""
        return self.data

    def to_rgb(self) -> npt.NDArray[np.uint8]:
        """Return a copy of the picture as RGB, shape (H, W, 3), uint8; see `visionipc.convert.to_rgb`.

        Raises
        ------
        MissingLibraryError : the format needs OpenCV or PyAV, and neither is installed.
        InvalidValueError : the format (FLOAT32, RAW) has no colours.
        """
        from visionipc.convert import to_rgb

        return to_rgb(self.view, self._record.geometry)

    def valid(self) -> bool:
        """Return True if the buffer still contains this frame. Always True for held frames of servers of this library.

        A stock server overwrites buffers in use. Copy the data first, then call `valid`. If the result is True, the
        copy is good.
        """
        # In this order: reading what the server has cut off is what tells of it.
        return self.leased or (self._region.read_u64(len(self.view)) == self.frame_id and not self._region.lost)

    def release(self) -> None:
        """Release the buffer, except for arrays that still use it. A second release has no effect."""
        self._view = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
