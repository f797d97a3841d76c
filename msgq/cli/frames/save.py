"""`msgq frames save`: saves frames to files."""

from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.frames import incoming
from visionipc.convert import encode_png


@click.command(epilog=options.EXIT_CODES)
@incoming.server_argument
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@incoming.stream_option
@click.option(
    "-n",
    "--count",
    type=click.IntRange(1, 100_000),
    default=1,
    show_default=True,
    metavar="COUNT",
    help="Number of frames. Several frames are saved to numbered files, such as picture-0001.png.",
)
@click.option("--raw", is_flag=True, help="Save the bytes of the buffer instead of a PNG.")
@incoming.timeout_option
@options.json_option
@options.prefix_option
def command(
    server: str,
    file: Path,
    stream: int | None,
    count: int,
    raw: bool,
    timeout: float,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Save the next frames of a server to files.

    PNG needs msgq-bus[frames]. With --raw and --json, the command prints the layout of the file: format, width,
    height, stride and uv_offset.
    """
    with incoming.open_frames(server, stream, prefix, timeout, conflate=False) as frames:
        for number, frame in enumerate(frames, 1):
            path = file if count == 1 else file.with_stem(f"{file.stem}-{number:04}")
            with frame:
                about = incoming.describe_frame(frame, path)
                data = frame.data.tobytes() if raw else frame.to_rgb()
            path.write_bytes(data if isinstance(data, bytes) else encode_png(data))
            if as_json:
                echo_json(about)
            else:
                echo(f"frame {about.frame_id}, {about.format} {about.width} x {about.height}: {path}")
            if number == count:
                break
