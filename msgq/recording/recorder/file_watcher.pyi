"""Files that get a name, by inotify."""

from collections.abc import Iterable
from typing import final

@final
class FileArrival:
    """A file that got a name."""

    @property
    def directory(self) -> str:
        """The directory that it is in."""
    @property
    def name(self) -> str:
        """Its name there."""
    @property
    def fd(self) -> int:
        """A descriptor for reading, of the moment when it came, closed with this object; -1: it would not open."""
    @property
    def inode(self) -> int | None:
        """Its number; None where it could not be opened."""
    @property
    def gone(self) -> bool:
        """Whether it had no such name any more."""

@final
class FileWatcher:
    """Tells of files that are made in some directories, or moved there, and opens them at once.

    For one thread at a time. `Capture.watch` has it look while a run is under way.
    """

    def __init__(self, places: Iterable[tuple[str, str]], parent: str) -> None:
        """Look from now on.

        Parameters
        ----------
        places : at most 8 directories, and what the names of files that are meant start with there. A directory may
            come and go, in `parent`.
        parent : a directory that is there.

        Raises
        ------
        OSError : this user has no inotify instances or watches left, or this process no descriptors.
        """

    @property
    def overflowed(self) -> bool:
        """Whether files ever came that nobody was told of: the kernel keeps so many only."""

    def poll(self) -> tuple[list[FileArrival], bool]:
        """Return the files that got their names since, in this order, without waiting: 256 at most, the next ones then.

        And whether some were not told (a directory has just come, or they were too many): look at all.

        Raises
        ------
        OSError : as above, for a directory that has just come.
        """
