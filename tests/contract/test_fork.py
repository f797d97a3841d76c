"""After a fork: the child's subscriber goes on by itself, its publisher is refused, the parent notices nothing.

Each scenario forks in a process of its own, which has no other threads (see actors.py).
"""

from __future__ import annotations

import pytest

from tests.contract import actors
from tests.contract.conftest import Backend
from tests.support import run_child

pytestmark = pytest.mark.needs("fork", "stats")


def test_parent_and_child_each_receive_everything(backend: Backend, endpoint: str) -> None:
    both = run_child(actors.forked_subscriber, backend.name, endpoint)
    assert both == {"child": ["pending", "later"], "parent": ["pending", "later"]}


def test_the_child_takes_a_place_of_its_own_and_leaves_only_that(backend: Backend, endpoint: str) -> None:
    seen = run_child(actors.forked_places, backend.name, endpoint)
    assert seen == {"in the child": 2, "afterwards": 1, "parent": "still there"}


def test_the_child_may_not_publish(backend: Backend, endpoint: str) -> None:
    answer = run_child(actors.forked_publisher, backend.name, endpoint)
    assert answer == {"refused": [endpoint] * 5, "parent": "from the parent", "rest": None}


def test_a_reservation_belongs_to_the_parent(backend: Backend, endpoint: str) -> None:
    answer = run_child(actors.forked_reservation, backend.name, endpoint)
    assert answer == {"child": "refused", "parent": "ab", "rest": None}


def test_sockets_that_the_child_does_not_use_stay_the_parents(backend: Backend, endpoint: str) -> None:
    answer = run_child(actors.forked_unused, backend.name, endpoint)
    assert answer == {"parent": "here", "subscribers": 1}


def test_the_child_stays_in_the_prefix_that_the_socket_connected_in(backend: Backend, prefix: str) -> None:
    assert run_child(actors.forked_prefix, backend.name, prefix) == ["x", []]


@pytest.mark.needs("passive")
def test_a_passive_subscriber_goes_on_in_the_child(backend: Backend, endpoint: str) -> None:
    assert run_child(actors.forked_passive, backend.name, endpoint) == ["x", "x"]
