"""Messages of ROS 2, made by rosbags."""

from typing import Any

import numpy as np
from rosbags.typesys import Stores, get_typestore

from msgq.common.schema import Schema

STORE = get_typestore(Stores.ROS2_HUMBLE)
_JOINTS = [f"joint{number}" for number in range(7)]


def _of(name: str, *values: Any) -> Any:
    return STORE.types[name](*values)


def _header(i: int) -> Any:
    return _of("std_msgs/msg/Header", _of("builtin_interfaces/msg/Time", i, 7), "base_link")


def _imu(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return numbers and three matrices, 320 bytes."""
    vector = _of("geometry_msgs/msg/Vector3", *noise[:3])
    turned = _of("geometry_msgs/msg/Quaternion", *noise[:4])
    return _of("sensor_msgs/msg/Imu", _header(i), turned, noise[:9], vector, noise[9:18], vector, noise[18:27])


def _cloud(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return 20,000 points of 16 bytes."""
    fields = [_of("sensor_msgs/msg/PointField", name, 4 * k, 7, 1) for k, name in enumerate("xyzi")]
    data = np.resize(noise.view(np.uint8), 320_000)
    return _of("sensor_msgs/msg/PointCloud2", _header(i), 1, 20_000, fields, False, 16, 320_000, data, True)


def _transforms(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return ten transforms, each with two texts."""
    moved = _of("geometry_msgs/msg/Vector3", *noise[:3]), _of("geometry_msgs/msg/Quaternion", *noise[:4])
    transform = _of("geometry_msgs/msg/Transform", *moved)
    stamped = [_of("geometry_msgs/msg/TransformStamped", _header(i), f"joint{k}", transform) for k in range(10)]
    return _of("tf2_msgs/msg/TFMessage", stamped)


def _scan(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return two arrays of 720 numbers."""
    ranges = np.resize(noise.astype(np.float32), 720)
    return _of("sensor_msgs/msg/LaserScan", _header(i), *noise[:7].tolist(), ranges, ranges)


def _joints(i: int, noise: np.ndarray[Any, Any]) -> Any:
    """Return seven texts and three arrays of seven numbers."""
    return _of("sensor_msgs/msg/JointState", _header(i), _JOINTS, noise[:7], noise[7:14], noise[14:21])


TYPES = {
    "imu": ("sensor_msgs/msg/Imu", _imu),
    "tf": ("tf2_msgs/msg/TFMessage", _transforms),
    "cloud": ("sensor_msgs/msg/PointCloud2", _cloud),
    "laser_scan": ("sensor_msgs/msg/LaserScan", _scan),
    "joint_state": ("sensor_msgs/msg/JointState", _joints),
}


def make_schema(kind: str) -> Schema:
    """Return the schema of a kind of message."""
    name = TYPES[kind][0]
    return Schema(name, "cdr", STORE.generate_msgdef(name, ros_version=2)[0].encode())


def make_messages(kind: str, count: int) -> list[bytes]:
    """Return different messages of a kind in CDR."""
    name, make = TYPES[kind]
    noise = np.random.default_rng(1).random((count, 30))
    return [bytes(STORE.serialize_cdr(make(i, noise[i]), name)) for i in range(count)]
