"""Texts of others on a terminal."""

import unicodedata


def escape_terminal(text: str) -> str:
    r"""Return a text of one line that no terminal obeys.

    Other characters are escaped as Python does it ("\x1b", "\n", "\u202e"): control characters, those that turn
    the direction of writing or cannot be seen, halves of surrogate pairs, what Unicode has not assigned. Spaces of all
    widths stay.
    """
    return text if text.isprintable() else "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
