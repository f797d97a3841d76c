"""A subscriber sets the schema of a channel. A program with another schema gets an error.

python -m examples.agreement
"""

from __future__ import annotations

import numpy as np

import msgq
from examples.processes import finish, say, start

POSE = np.dtype([("x", "<f8"), ("y", "<f8")])
POSE_3D = np.dtype([("x", "<f8"), ("y", "<f8"), ("z", "<f8")])


def schema(dtype: np.dtype) -> msgq.Schema:
    """Return a schema with the fields of a dtype and their offsets."""
    return msgq.Schema("pose", "numpy", str(dtype.descr).encode())


def localiser() -> None:
    """Publish poses without a schema."""
    with msgq.Node("localiser") as node:
        node.advertise("pose").send(np.zeros(1, POSE))
    say("localiser: published")


def planner() -> None:
    """Set the schema of the channel, which has none, and receive the poses."""
    with msgq.Channel("pose", node="planner") as channel:
        claimed = channel.claim_schema(schema(POSE))
        poses = channel.subscriber(history=1).receive_array(POSE)
        say(f"planner: claimed {claimed}, and received {poses.tolist()}")


def newer_planner() -> None:
    """Open the channel with another schema, and detect the difference before the first message."""
    channel = msgq.Channel("pose", schema=schema(POSE_3D), node="newer_planner")
    say(f"newer_planner: the schema matches: {channel.schema_matches}")
    try:
        msgq.Channel("pose", schema=schema(POSE_3D), strict_schema=True)
    except msgq.errors.SchemaMismatchError as error:
        say(f"newer_planner: {error}")


def main() -> None:
    """Run the programs one after the other."""
    with msgq.Channel("pose", create=True) as channel:
        try:
            for program in (localiser, planner, newer_planner):
                finish(start(program))
        finally:
            channel.unlink()


if __name__ == "__main__":
    main()
