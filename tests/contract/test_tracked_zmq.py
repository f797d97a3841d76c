"""The ZMQ backend has no place for stamps, and says so."""

from __future__ import annotations

import pytest

from msgq.errors import StateError
from tests.contract.conftest import Backend

SAYS = "ZMQ messages have no timestamps"


def test_zmq_tracked_topic_is_refused(endpoint: str) -> None:
    zmq = Backend("zmq")
    with pytest.raises(StateError, match=SAYS):
        zmq.pub(endpoint, tracked=True)
    with zmq.pub(endpoint, tracked=False) as pub, zmq.sub(endpoint, timeout=0) as sub:
        assert not pub.tracked
        assert not sub.tracked
        with pytest.raises(StateError, match=SAYS):
            sub.receive_tracked()
        with pytest.raises(StateError, match=SAYS):
            pub.send(b"x", origin_time=1)
        with pytest.raises(StateError, match=SAYS):
            pub.send_many([b"x"], origin_time=1)
        with pytest.raises(StateError, match=SAYS):
            pub.reserve(1, origin_time=1)
        assert pub.stats().messages == 0
        pub.send(b"x", origin_time=0)
        assert pub.stats().messages == 1
    zmq.close()
