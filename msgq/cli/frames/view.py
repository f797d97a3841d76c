"""`msgq frames view`: shows the live picture of a stream in the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.color import Color
from rich.console import Console, ConsoleOptions
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

from msgq.cli.common import options
from msgq.cli.common.console import get_console
from msgq.cli.common.render import echo_json
from msgq.cli.frames import incoming
from visionipc.convert import encode_png

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from visionipc import VisionBuf

_FRAME_PERIOD_S = 0.1  # a terminal does not take many more pictures a second
_COLOUR_MASK = 0xF8  # 32 levels of each colour, so that neighbours are alike and the cache finds their styles


@click.command(epilog=options.EXIT_CODES)
@incoming.server_argument
@incoming.stream_option
@click.option(
    "-n", "--count", type=click.IntRange(1), metavar="COUNT", help="Stop after COUNT frames.  [default: no limit]"
)
@click.option(
    "--png", type=click.Path(dir_okay=False, path_type=Path), help="Save the newest frame to FILE at the end."
)
@incoming.timeout_option
@options.json_option
@options.prefix_option
def command(
    server: str,
    stream: int | None,
    count: int | None,
    png: Path | None,
    timeout: float,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Show the newest frames of a server in the terminal.

    Each character shows two pixels. The command holds a buffer only while it copies the frame. Without a terminal,
    --png saves one frame. With --json, the command prints one object for each frame instead of the picture. To use
    --png, or to show formats other than RGB and grey, install msgq-bus[frames].
    """
    screen = get_console()
    if not screen.is_terminal and not as_json:
        if png is None:
            raise click.UsageError("standard output is not a terminal; give --png FILE or --json")
        count = count or 1
    with (
        incoming.open_frames(server, stream, prefix, timeout, conflate=True) as frames,
        _open_live_picture(screen, as_json) as live,
    ):
        newest = _show_frames(frames, live, count, as_json, png is not None)
    if png is not None and newest is not None:
        png.write_bytes(encode_png(newest))


def _open_live_picture(screen: Console, as_json: bool) -> Live | nullcontext[None]:
    return Live(console=screen, auto_refresh=False) if screen.is_terminal and not as_json else nullcontext()


def _show_frames(
    frames: Iterator[VisionBuf], live: Live | None, count: int | None, as_json: bool, keep: bool
) -> npt.NDArray[np.uint8] | None:
    """Show `count` frames. Return the newest one as RGB if `keep` is True."""
    rgb = None
    for number, frame in enumerate(frames, 1):
        with frame:
            about = incoming.describe_frame(frame)
            rgb = frame.to_rgb() if keep or live is not None else None
        if as_json:
            echo_json(about)
        if live is not None and rgb is not None:
            title = f"frame {about.frame_id}, {about.format} {about.width} x {about.height}"
            live.update(HalfBlockPicture(rgb, title), refresh=True)
            time.sleep(_FRAME_PERIOD_S)
        if number == count:
            break
    return rgb


class HalfBlockPicture:
    """A picture of characters, each with two pixels, and a line of text below."""

    def __init__(self, rgb: npt.NDArray[np.uint8], title: str) -> None:
        self._rgb, self._title = rgb, title

    def __rich_console__(self, screen: Console, settings: ConsoleOptions) -> Iterator[Segment]:
        lines = max(1, (settings.height or screen.height) - 2)
        pixels = scale_picture(self._rgb, settings.max_width, 2 * lines) & _COLOUR_MASK
        for upper, lower in zip(pixels[::2].tolist(), pixels[1::2].tolist(), strict=True):
            for (above, below), run in groupby(zip(map(tuple, upper), map(tuple, lower), strict=True)):
                yield Segment("▀" * len(list(run)), _make_style(above, below))
            yield Segment.line()
        yield Segment(self._title[: settings.max_width])


def scale_picture(rgb: npt.NDArray[np.uint8], width: int, height: int) -> npt.NDArray[np.uint8]:
    """Return the largest picture that fits, with an even number of rows.

    Pixels are taken from the original, not averaged.
    """
    import numpy as np

    rows, columns = rgb.shape[:2]
    factor = min(width / columns, height / rows)
    to_columns = max(1, int(columns * factor))
    to_rows = max(2, int(rows * factor) // 2 * 2)
    y = (np.arange(to_rows) + 0.5) * rows / to_rows
    x = (np.arange(to_columns) + 0.5) * columns / to_columns
    sampled: npt.NDArray[np.uint8] = rgb[y.astype(int)[:, np.newaxis], x.astype(int)]
    return sampled


@lru_cache(maxsize=1 << 16)
def _make_style(above: tuple[int, int, int], below: tuple[int, int, int]) -> Style:
    return Style(color=Color.from_rgb(*above), bgcolor=Color.from_rgb(*below))
