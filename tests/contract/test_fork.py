"""After a fork: the child's subscriber continues on its own cursor, and its publisher takes over at its first send.

Each scenario forks in a process of its own, which has no other threads (see children.py).
"""

from __future__ import annotations

import pytest

from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import Child, run_child

pytestmark = pytest.mark.needs("fork", "stats")


def test_parent_and_forked_child_each_receive_all_messages(backend: Backend, endpoint: str) -> None:
    both = run_child(children.forked_subscriber, backend.name, endpoint)
    assert both == {"child": ["pending", "later"], "parent": ["pending", "later"]}


def test_subscriber_in_forked_child_has_its_own_row(backend: Backend, endpoint: str) -> None:
    seen = run_child(children.forked_places, backend.name, endpoint)
    assert seen == {"in the child": 2, "afterwards": 1, "parent": "still there"}


def test_publisher_in_forked_child_takes_over_at_first_send(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_publisher, backend.name, endpoint)
    received = ["parent", "send", "many", "buffer", "reserve"]
    assert answer == {"received": received, "lost": 0, "refused": True, "rest": None}


def test_publisher_superseded_after_fork_stays_superseded(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_publishers, backend.name, endpoint)
    assert answer == {"parent": [True] * 2, "child": [True] * 2, "received": ["child", "again", "still"], "lost": 0}


def test_stats_and_close_in_forked_child_do_not_take_over_publisher(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_counts, backend.name, endpoint)
    assert answer == {"child": [False, "before", True], "parent": ["before", "after"]}


def test_send_in_forked_child_waits_for_reservation_of_parent(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_while_reserved, backend.name, endpoint)
    assert answer == {"child": [True, False, True], "parent": ["ab", "cd"]}


def test_process_pool_workers_send_with_module_level_publisher(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_pool, backend.name, endpoint)
    assert answer == {"workers": 3, "received": list("abcde")}


def test_publisher_connected_before_daemonizing_publishes_in_the_daemon(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    with Child(children.forked_daemon, backend.name, endpoint) as child:
        assert child.hear() == "daemon"
        child.say()
        assert child.hear() == "sent"
        assert child.process.stdout is not None
        child.process.stdout.read()  # to its end: the daemon is gone
    assert sub.receive_many() == [b"from the daemon", b"still there"]


def test_reservation_of_parent_is_unusable_in_forked_child(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_reservation, backend.name, endpoint)
    assert answer == {"child": "refused", "parent": "ab", "rest": None}


def test_sockets_unused_by_forked_child_stay_usable_in_parent(backend: Backend, endpoint: str) -> None:
    answer = run_child(children.forked_unused, backend.name, endpoint)
    assert answer == {"parent": "here", "subscribers": 1}


def test_socket_in_forked_child_keeps_prefix_of_its_connection(backend: Backend, prefix: str) -> None:
    assert run_child(children.forked_prefix, backend.name, prefix) == ["x", []]


@pytest.mark.needs("passive")
def test_passive_subscriber_continues_in_forked_child(backend: Backend, endpoint: str) -> None:
    assert run_child(children.forked_passive, backend.name, endpoint) == ["x", "x"]
