"""Conditional requests that create objects, against a server that answers as a test wants."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from msgq.common.storage import file_creation
from msgq.common.storage.file_creation import ObjectCreator
from msgq.common.storage.store_errors import describe_store_error
from msgq.errors import StorageError

obstore_store = pytest.importorskip("obstore.store")
CONFLICT = 409, b"<Error><Code>ConditionalRequestConflict</Code></Error>"
DATA = b"commit"


class Server(ThreadingHTTPServer):
    """Answers each PUT with the next reply of a list, and has the objects of the successful ones."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies: list[tuple[int, bytes]] = []
        self.objects: dict[str, bytes] = {}
        self.puts = 0


class Handler(BaseHTTPRequestHandler):
    """One connection to the server."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.puts += 1
        status, text = self.server.replies.pop(0) if self.server.replies else (200, b"")
        if status == 200:
            self.server.objects[self.path] = body
        self.reply(status, text)

    def do_GET(self) -> None:
        content = self.server.objects.get(self.path)
        self.reply(404 if content is None else 200, content or b"<Error><Code>NoSuchKey</Code></Error>")

    def reply(self, status: int, text: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", "Mon, 30 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def creator(server: Server, monkeypatch: pytest.MonkeyPatch) -> ObjectCreator:
    monkeypatch.setattr(file_creation, "_CONFLICT_PAUSE_S", 0)
    options = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    endpoint = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
    store = obstore_store.from_url("s3://bucket", config=options | endpoint, client_options={"allow_http": True})
    return ObjectCreator(store, "s3://bucket", options)


def test_conflict_with_a_request_that_fails_is_repeated(server: Server, creator: ObjectCreator) -> None:
    server.replies = [CONFLICT, CONFLICT]
    assert creator.create_object("log/1.json", DATA)
    assert (server.puts, server.objects) == (3, {"/bucket/log/1.json": DATA})


def test_conflict_with_a_request_that_succeeds_is_no_creation(server: Server, creator: ObjectCreator) -> None:
    server.replies, server.objects = [CONFLICT], {"/bucket/log/1.json": b"another commit"}
    assert not creator.create_object("log/1.json", DATA)
    assert server.puts == 1


def test_conflicts_without_end_are_an_error(server: Server, creator: ObjectCreator) -> None:
    server.replies = [CONFLICT] * 100
    with pytest.raises(StorageError, match="other writers conflicted 6 times"):
        creator.create_object("log/1.json", DATA)


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (501, "NotImplemented", "does not support the request; a lake needs a store with conditional writes"),
        (400, "InvalidRequest", "the store failed with InvalidRequest"),
        (507, "InsufficientStorage", "the store failed with (InsufficientStorage|507)"),
        (403, "AccessDenied", "the access is denied"),
    ],
)
def test_error_names_the_reason_of_the_store(
    server: Server, creator: ObjectCreator, status: int, code: str, reason: str
) -> None:
    server.replies = [(status, f"<Error><Code>{code}</Code></Error>".encode())] * 100
    with pytest.raises(StorageError, match=reason):
        creator.create_object("log/1.json", DATA)


def test_duration_of_a_request_is_not_its_status() -> None:
    text = "Generic S3 error: Error performing PUT http://host/x in 403.9ms - Server returned status code: 400 Bad"
    assert "access is denied" not in (describe_store_error(text) or "")
