"""Common base of publisher and subscriber sockets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.common import naming
from msgq.common.closing import ClosingContext
from msgq.errors import StateError
from msgq.impl.base.core import Context

if TYPE_CHECKING:
    from msgq.impl.fake.endpoint_state import EndpointState


def check_can_connect(context: Context, endpoint: str | bytes, closed: bool, connected_endpoint: str) -> str:
    """Return the endpoint's name. Raises an error if the socket cannot connect now."""
    if not isinstance(context, Context):
        raise TypeError(f"context is of type {type(context).__name__}; give a Context")
    name = naming.validate_endpoint_name(endpoint)
    if context.closed:
        raise StateError("context was terminated; create a new one", name)
    if not closed:
        raise StateError("socket is connected already; close it first", connected_endpoint)
    return name


class FakeSocket(ClosingContext):
    """Common base of publisher and subscriber sockets."""

    __slots__ = ("__weakref__", "_endpoint")

    def __init__(self) -> None:
        self._endpoint = ""

    def __del__(self) -> None:
        if hasattr(self, "_endpoint"):  # False: the constructor refused its arguments
            self.close()

    @property
    def endpoint(self) -> str:
        """Name of the endpoint; "" before the first `connect`."""
        return self._endpoint

    def _is_last_sender(self, _source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return False
