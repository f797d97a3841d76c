"""The base of `SubSocket`: what it is apart from receiving. Not to be used by itself."""

from typing_extensions import disjoint_base

@disjoint_base
class Connection:
    """A place in a topic, with a sleep that messages end. The contract is in subscriber.pyi."""
