"""An S3 server for tests: moto in a process of its own, one for each process of pytest-xdist.

moto keeps all objects in memory. The server ends with its standard input, so a killed test leaves no process.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest

SECRET = "a-secret-of-the-tests"
_SERVE = """
import contextlib, logging, random, socket, sys
logging.getLogger("werkzeug").setLevel(logging.ERROR)
from moto.server import ThreadedMotoServer

def find_free_port():
    # below the ports of ZMQ publishers, which begin at 8023
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", random.randrange(5000, 8000)))
            return probe.getsockname()[1]

server = ThreadedMotoServer("127.0.0.1", find_free_port(), verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class ObjectStore:
    """A bucket of an S3 server.

    Attributes:
        endpoint: URL of the server.
        bucket: name of a bucket that no other test has.
    """

    endpoint: str
    bucket: str

    @property
    def url(self) -> str:
        """URL of the bucket."""
        return f"s3://{self.bucket}"

    @property
    def options(self) -> dict[str, str]:
        """Storage options for the server, which are also environment variables."""
        return {
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def connect(self) -> Any:
        """Return a client of boto3, to look at objects."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="tests",
            aws_secret_access_key=SECRET,
        )

    def list_keys(self) -> list[str]:
        """Return the keys of all objects."""
        pages = self.connect().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return sorted(entry["Key"] for page in pages for entry in page.get("Contents", ()))


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of an S3 server that lives until the end of the run."""
    pytest.importorskip("moto")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", _SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def create_bucket(endpoint: str) -> ObjectStore:
    """Return a new, empty bucket of a server."""
    store = ObjectStore(endpoint, f"bucket-{uuid4().hex}")
    store.connect().create_bucket(Bucket=store.bucket)
    return store


@pytest.fixture
def object_store(s3_endpoint: str) -> ObjectStore:
    """Return an empty bucket. Credentials are in its `options` only, and not in the environment."""
    return create_bucket(s3_endpoint)


@pytest.fixture
def s3_environment(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """Return an empty bucket, with its credentials in the environment."""
    for name, value in object_store.options.items():
        monkeypatch.setenv(name, value)
    return object_store
