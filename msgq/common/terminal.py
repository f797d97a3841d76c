"""Escaping of untrusted text for terminals."""

import unicodedata


def escape_terminal(text: str) -> str:
    r"""Return a text of one line without control sequences.

    The call escapes these characters as Python does ("\x1b", "\n", "\u202e"): control characters, invisible characters,
    characters that change the writing direction, halves of surrogate pairs, and unassigned characters of Unicode.
    Spaces of all widths stay.
    """
    return text if text.isprintable() else "".join(map(_escape_character, text))


def _escape_character(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode()
