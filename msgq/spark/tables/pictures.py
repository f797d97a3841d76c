"""Frames: which messages are pictures, and what they look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.spark.tables.deduplication import payload_bytes
from visionipc.recorded import fields

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import Column, DataFrame

COMPRESSED = "sensor_msgs/msg/CompressedImage"  # a JPEG with a head before it, as recorders write frames
IMAGE = "sensor_msgs/msg/Image"  # pixels with a head before them
MAGIC = {"jpeg": b"\xff\xd8\xff", "png": b"\x89PNG\r\n\x1a\n"}

#: Of what ROS, or visionipc, calls it: lines for one of the picture, samples of a pixel, OpenCV's way to BGR.
_RAW: dict[str, tuple[float, int, str | None]] = {
    "rgb8": (1, 3, "COLOR_RGB2BGR"),
    "bgr8": (1, 3, None),
    "rgba8": (1, 4, "COLOR_RGBA2BGR"),
    "mono8": (1, 1, "COLOR_GRAY2BGR"),
    "nv12": (1.5, 1, "COLOR_YUV2BGR_NV12"),
}


def _format() -> Column:
    kind = F.when(F.col("schema") == COMPRESSED, "jpeg").when(F.col("schema") == IMAGE, "raw")
    for name, magic in MAGIC.items():
        kind = F.when(F.startswith(F.col("data"), F.lit(magic)), F.lit(name)).otherwise(kind)
    return kind


def frames(messages: DataFrame) -> DataFrame:
    """Return pointers to the messages that are pictures: JPEG, PNG, or ROS 2's Image in CDR.

    Input: messages. Output: run, endpoint, epoch, sequence, log_time: which message; format: "jpeg", "png" or "raw";
    bytes.
    """
    kind = F.col("picture") if "picture" in messages.columns else _format()
    return (
        messages.withColumn("format", kind)
        .where(F.col("format").isNotNull())
        .select("run", "endpoint", "epoch", "sequence", "log_time", "format", payload_bytes(messages).alias("bytes"))
    )


def thumbnails(messages: DataFrame, frames: DataFrame, count: int = 6, width: int = 160) -> DataFrame:
    """Return a few small pictures of each endpoint, evenly spread.

    Input: messages; `frames` as the function of this name makes them. Output: run, endpoint, log_time, and picture: a
    JPEG at most `width` pixels wide. Needs opencv on the workers; a picture that it cannot read is left out, and of raw
    ones all but rgb8, bgr8, rgba8, mono8, nv12.
    """
    place = Window.partitionBy("run", "endpoint").orderBy("log_time", "epoch", "sequence")
    spread = (
        frames.withColumn("part", F.ntile(count).over(place))
        .groupBy("run", "endpoint", "part")
        .agg(F.min_by(F.struct("epoch", "sequence", "log_time"), "log_time").alias("which"))
    )
    chosen = F.broadcast(spread.select("run", "endpoint", "which.*"))
    pictures = messages.join(chosen, ["run", "endpoint", "epoch", "sequence", "log_time"], "left_semi")
    columns = pictures.select("run", "endpoint", "log_time", F.col("data").alias("picture"))
    return columns.mapInArrow(lambda batches: _scaled(batches, width), columns.schema)


def _scaled(batches: Iterator[pyarrow.RecordBatch], width: int) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        small = [_thumbnail(picture, width) for picture in batch.column("picture").to_pylist()]
        pictures = pa.array(small, batch.schema.field("picture").type)
        whole = batch.set_column(batch.schema.get_field_index("picture"), batch.schema.field("picture"), pictures)
        yield whole.filter(pictures.is_valid())


def _thumbnail(picture: bytes, width: int) -> bytes | None:
    import cv2

    image = _pixels(picture)
    if image is None:
        return None
    scale = min(1.0, width / image.shape[1])
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    good, jpeg = cv2.imencode(".jpg", cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return jpeg.tobytes() if good else None


def _pixels(picture: bytes) -> Any:
    """Return an array of shape (height, width, 3) in the order BGR; None where nobody knows what it is."""
    import cv2
    import numpy as np

    try:
        said = fields(picture)
        width = said["width"]
        rows, samples, conversion = _RAW[said["encoding"]]
        lines = np.frombuffer(said["data"], np.uint8).reshape(-1, said["step"])
        lines = lines[: int(said["height"] * rows), : width * samples]
        pixels = np.ascontiguousarray(lines).reshape(-1, width, samples)
        return pixels if conversion is None else cv2.cvtColor(pixels, getattr(cv2, conversion))
    except (KeyError, ValueError, cv2.error):  # it is none of these
        begins = [at for magic in MAGIC.values() if (at := picture.find(magic)) >= 0]
    return cv2.imdecode(np.frombuffer(picture, np.uint8, offset=min(begins)), cv2.IMREAD_COLOR) if begins else None
