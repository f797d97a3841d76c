"""The file of a piece: opened or made, checked, mapped, locked. The base of each kind's; nothing here for Python."""

from typing_extensions import disjoint_base

@disjoint_base
class EndpointFile:
    """A piece's file, mapped and open for as long as somebody has this. Made between the compiled modules only."""

    @property
    def name(self) -> str:
        """The piece's name."""

    @property
    def prefix(self) -> str:
        """The prefix that it lives in; "": none."""

    @property
    def trust(self) -> object:
        """Whose files are used as one's own are, as it was given; None: MSGQ_TRUST says."""

    @property
    def mode(self) -> int:
        """Permissions of the file, as they were when it was opened."""

    @property
    def path(self) -> str:
        """Where it is."""
