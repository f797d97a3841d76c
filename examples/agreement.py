"""What the messages of a channel are is said late, by whoever knows; a program of another opinion finds out.

python -m examples.agreement
"""

from __future__ import annotations

import numpy as np

import msgq
from examples.processes import finish, say, start

POSE = np.dtype([("x", "<f8"), ("y", "<f8")])
POSE_3D = np.dtype([("x", "<f8"), ("y", "<f8"), ("z", "<f8")])


def schema(dtype: np.dtype) -> msgq.Schema:
    """Return a description of what is sent as NumPy has it: its fields, and where they lie."""
    return msgq.Schema("pose", "numpy", str(dtype.descr).encode())


def localiser() -> None:
    """Publish poses, and say nothing of what they are."""
    with msgq.Node("localiser") as node:
        node.advertise("pose").send(np.zeros(1, POSE))
    say("localiser: published")


def planner() -> None:
    """Know what they are, and say so; nobody has before."""
    with msgq.Channel("pose", node="planner") as channel:
        claimed = channel.claim_schema(schema(POSE))
        poses = channel.subscriber(history=1).receive_array(POSE)
        say(f"planner: claimed {claimed}, and received {poses.tolist()}")


def newer_planner() -> None:
    """Be built for other poses, and find out before the first message."""
    channel = msgq.Channel("pose", schema=schema(POSE_3D), node="newer_planner")
    say(f"newer_planner: the schema matches: {channel.schema_matches}")
    try:
        msgq.Channel("pose", schema=schema(POSE_3D), strict_schema=True)
    except msgq.errors.SchemaMismatchError as error:
        say(f"newer_planner: {error}")


def main() -> None:
    """Run one after the other."""
    with msgq.Channel("pose", create=True) as channel:
        try:
            for program in (localiser, planner, newer_planner):
                finish(start(program))
        finally:
            channel.unlink()


if __name__ == "__main__":
    main()
