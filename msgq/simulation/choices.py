"""Choices of a simulation: numbers from a seed, equal on every machine and Python, or a list of earlier choices."""

from __future__ import annotations

from collections.abc import Sequence

from msgq.errors import InvalidValueError

_UINT64_MAX = (1 << 64) - 1


class SplitMixRandom:
    """The splitmix64 generator: 64 bits of state, stepped by a constant and mixed."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _UINT64_MAX

    def next_uint64(self) -> int:
        """Return 64 random bits."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _UINT64_MAX
        mixed = self._state
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & _UINT64_MAX
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _UINT64_MAX
        return mixed ^ mixed >> 31

    def choose_number_below(self, n: int) -> int:
        """Return a number from 0 to n - 1."""
        return self.next_uint64() * n >> 64

    def draw_with_probability(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.next_uint64() < probability * 2.0**64


class ChoiceSequence:
    """Chooses the next event.

    Attributes:
        decisions: pairs of the choice and the number of possibilities, for each choice between several. Kept only with
            given choices.
    """

    def __init__(self, seed: int, choices: Sequence[int] | None) -> None:
        self._seed, self._random = seed, SplitMixRandom(seed)
        self._given_choices = choices
        self.decisions: list[tuple[int, int]] = []

    def __str__(self) -> str:
        if self._given_choices is None:
            return f"seed={self._seed}"
        return f"choices={[choice for choice, _ in self.decisions]}"

    def choose_index(self, n: int) -> int:
        """Return a number from 0 to n - 1, by the seed, or by the given choices. After the last given choice, return 0.

        Raises:
            InvalidValueError: the given choice is out of range.
        """
        if n == 1:
            return 0
        if self._given_choices is None:
            return self._random.choose_number_below(n)
        place = len(self.decisions)
        choice = self._given_choices[place] if place < len(self._given_choices) else 0
        if not 0 <= choice < n:
            text = (
                f"choices[{place}] is {choice}, but the program has only {n} choices there; "
                "use choices of the same program"
            )
            raise InvalidValueError(text)
        self.decisions.append((choice, n))
        return choice
