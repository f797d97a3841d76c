"""Stock servers and clients of frames for the tests: `frames_peer.c`, driven line by line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.stock import Driven, executable, segment_path


def picture(frame_id: int, size: int) -> bytes:
    """Return the bytes that the peer puts into a frame."""
    i = np.arange(size, dtype=np.uint64)
    return ((frame_id * 31 + i * 7 + i // 251) & 255).astype(np.uint8).tobytes()


@dataclass(frozen=True)
class Layout:
    """What a client is told of a stream; 0 buffers: it is not connected."""

    buffers: int
    width: int
    height: int
    stride: int
    uv_offset: int
    size: int


def nv12(width: int, height: int, buffers: int = 4) -> Layout:
    return Layout(buffers, width, height, width, width * height, width * height * 3 // 2)


SMALL = nv12(64, 48)


@dataclass(frozen=True)
class StockFrame:
    """A frame as a stock client finds it; `trailing` is the frame's id behind the picture."""

    index: int
    frame_id: int
    timestamp_sof: int
    timestamp_eof: int
    valid: int
    trailing: int
    data: bytes


class FramesPeer(Driven):
    """A stock process of frames; stock makes no directories, so that of the prefix is made for it."""

    def __init__(self) -> None:
        segment_path("any").parent.mkdir(exist_ok=True)
        super().__init__(executable("frames_peer.c"))


class StockServer(FramesPeer):
    """Serves the streams; `server_ids` has what they were given."""

    def __init__(self, name: str, streams: dict[int, Layout]) -> None:
        super().__init__()
        self.name = name
        self.streams = streams
        try:
            self.server_ids = [self._make(kind, layout) for kind, layout in streams.items()]
            self.command("listen", name)
        except BaseException:
            self.close()
            raise

    def _make(self, kind: int, g: Layout) -> int:
        words = (self.name, kind, g.buffers, g.width, g.height, g.stride, g.uv_offset, g.size)
        return int(self.command("stream", *words)[0])

    def publish(self, kind: int, first: int, count: int = 1) -> None:
        """Write pictures number `first` and following into the buffers in turn; timestamps are 1000, 2000 x that."""
        self.command("publish", kind, first, count)


class StockClient(FramesPeer):
    """A client of one stream; it need not connect at once."""

    def __init__(self, name: str, kind: int, conflate: bool = False) -> None:
        super().__init__()
        self._arguments = name, kind, int(conflate)

    def connect(self) -> Layout:
        """Ask the server, anew if need be, and map the buffers for writing."""
        return Layout(*map(int, self.command("connect", *self._arguments)[:6]))

    def streams(self) -> list[int]:
        return [int(kind) for kind in self.command("streams", self._arguments[0])]

    def receive(self, timeout_ms: int = 0) -> StockFrame | str:
        """Return a frame, "nothing", or "lost" when it is of another server."""
        kind, *words = self.command("receive", timeout_ms)
        if kind != "frame":
            return kind
        index, frame_id, sof, eof, valid, trailing = map(int, words[:6])
        return StockFrame(index, frame_id, sof, eof, valid, trailing, bytes.fromhex(words[6]))

    def scribble(self, byte: int) -> None:
        """Write over all pictures."""
        self.command("scribble", byte)
