"""README and the guides name their subjects: few pronouns, few semicolons, and no words of this project only."""

from __future__ import annotations

import re

from tests.cases import each_case
from tests.meta.sources import PAGES, ROOT
from tests.meta.test_vocabulary import BANNED_WORDS as BANNED_IN_IDENTIFIERS

PRONOUNS = {
    *("it", "itself", "that", "what", "which", "who", "whom", "whoever", "whatever", "whichever"),
    *("nobody", "somebody", "anybody", "everybody", "they", "them", "these", "those"),
}
#: Of a thousand words. READMEs of comparable projects have 10 to 32 pronouns.
MOST_PRONOUNS, MOST_SEMICOLONS = 35, 3
#: Words of identifiers that have an ordinary meaning in prose.
ORDINARY_WORDS = {"bursts", "remains", "spelling"}
BANNED_WORDS = {
    **{word: better for word, better in BANNED_IN_IDENTIFIERS.items() if word not in ORDINARY_WORDS},
    "anew": "again",
    "astray": "lost",
    "beside itself": "in addition",
    "forsaken": "without a publisher",
    "in vain": "without result",
    "kin": "the other methods",
    "nobody": "no process",
    "onlooker": "observer",
    "somebody": "another process",
    "so far": "yet",
    "thrice": "three times",
    "told": "notified, or reported",
    "whoever": "the process",
}


def prose(page: str) -> str:
    """Return a page without code, tables' markup and addresses of links."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", "X", text)
    return re.sub(r"\]\([^)]*\)|<[^>]+>", "", text)


def find_prose_faults(page: str) -> list[str]:
    """Return how a page breaks the rules."""
    text = prose(page)
    words = [word.lower() for word in re.findall(r"[A-Za-z']+", text)]
    thousands = max(len(words), 300) / 1000  # three pronouns in a page of ten words are no fault
    pronouns = sum(word in PRONOUNS for word in words) / thousands
    semicolons = text.count(";") / thousands
    spaced = " ".join(words)
    return [
        *([f"{pronouns:.0f} pronouns of 1,000 words"] if pronouns > MOST_PRONOUNS else []),
        *([f"{semicolons:.0f} semicolons of 1,000 words"] if semicolons > MOST_SEMICOLONS else []),
        *(f"'{word}': write {better}" for word, better in BANNED_WORDS.items() if re.search(rf"\b{word}\b", spaced)),
    ]


@each_case("page", PAGES)
def test_documentation_page_follows_prose_rules(page: str) -> None:
    assert find_prose_faults(page) == []
