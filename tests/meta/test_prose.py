"""README, the pages and the headers are easy to read: clear nouns, joined sentences, and no words of this project only.

The limits of words and of joined sentences hold for each page, and the limits of pronouns for each group of pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import pytest

from tests.cases import each_case
from tests.meta.sources import PAGES, ROOT, comments_by_line, headers
from tests.meta.test_vocabulary import BANNED_WORDS as BANNED_IN_IDENTIFIERS

#: README, the pages of docs/, and the page for contributors.
PROSE_PAGES = [*PAGES, "CONTRIBUTING.md"]
#: Semicolons per thousand words of a page.
MOST_SEMICOLONS = 3
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

#: Words that join a sentence with its reason, contrast, condition or time, or with the sentence before it.
CONNECTIVES = {
    *("after", "also", "although", "as", "because", "before", "but", "hence", "however", "if", "instead"),
    *("nevertheless", "once", "otherwise", "since", "so", "still", "then", "therefore", "though", "thus", "too"),
    *("unless", "until", "when", "whenever", "where", "whereas", "which", "while", "who", "whose", "yet"),
}
#: Words that stand for a noun of the same or of the previous sentence, or address the reader.
PRONOUNS = {
    *("it", "its", "itself", "this", "that", "these", "those", "they", "them", "their"),
    *("which", "who", "whom", "what", "you", "your", "we", "our"),
}
SHORT_SENTENCE_WORDS = 11
#: Percent of all triples of sentences. Guides of comparable projects have 0 to 8 %.
CHOPPY_TRIPLES_MAX = 5.0
#: Percent of all sentences that begin with "If". Guides of comparable projects have 3 to 5 %.
IF_SENTENCES_MAX = 8.0
#: Sentences of the shortest page with limits in percent. In a shorter page, one or two sentences would decide.
MEASURED_SENTENCES_MIN = 25
#: Pronouns per thousand words of a group. Guides of comparable projects have 15 to 28.
PRONOUNS_MIN, PRONOUNS_MAX, PRONOUNS_MAX_IN_SPECIFICATIONS = 15.0, 35.0, 40.0
#: Most faults that a message lists.
FAULTS_SHOWN = 30

_GENERATED = re.compile(r"^<!-- bench:.*?^<!-- /bench -->$", re.DOTALL | re.MULTILINE)
_NO_SENTENCES = re.compile(r"^[ \t]*(?:\||#|!\[|:::).*$", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\[*])")


def blank(found: re.Match[str]) -> str:
    """Return the line ends of a match, so that the text after it keeps its line numbers."""
    return "\n" * found[0].count("\n")


def without_markup(text: str) -> str:
    """Return a text without blocks of code, and with X for code, without addresses of links."""
    text = re.sub(r"^```.*?^```$", blank, text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`]*`", lambda found: blank(found) + "X", text)
    return re.sub(r"\]\([^)]*\)|<[^>]+>", blank, text)


def prose(page: str) -> str:
    """Return a page without code, tables' markup and addresses of links."""
    return without_markup((ROOT / page).read_text())


def split_words(text: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Za-z']+", text)]


def find_prose_faults(page: str) -> list[str]:
    """Return how a page breaks the rules."""
    text = prose(page)
    words = split_words(text)
    semicolons = text.count(";") / max(len(words), 300) * 1000  # one semicolon in a page of ten words is no fault
    spaced = " ".join(words)
    return [
        *([f"{semicolons:.0f} semicolons of 1,000 words"] if semicolons > MOST_SEMICOLONS else []),
        *(f"'{word}': write {better}" for word, better in BANNED_WORDS.items() if re.search(rf"\b{word}\b", spaced)),
    ]


@each_case("page", PROSE_PAGES)
def test_documentation_page_follows_prose_rules(page: str) -> None:
    assert find_prose_faults(page) == []


@dataclass(frozen=True)
class Sentence:
    """A sentence and its place: "FILE:LINE"."""

    place: str
    text: str

    @property
    def words(self) -> list[str]:
        return split_words(self.text)

    @property
    def pronouns(self) -> int:
        return sum(word in PRONOUNS for word in self.words)

    @property
    def is_choppy(self) -> bool:
        """Return whether it is short, and no word and no colon joins it with another fact."""
        joined = ":" in self.text or not CONNECTIVES.isdisjoint(self.words)
        return len(self.words) <= SHORT_SENTENCE_WORDS and not joined


def split_paragraphs(text: str, file: str, first_line: int = 1) -> Iterator[list[Sentence]]:
    """Yield the sentences of each paragraph and list item of a text without markup."""
    text = _NO_SENTENCES.sub("", text)
    begin = 0
    for end in [*(found.start() for found in _PARAGRAPH_END.finditer(text)), len(text)]:
        paragraph = text[begin:end]
        lead = re.match(r"\s*(?:(?:[-*]|\d+\.) )?", paragraph)
        start = begin + (lead.end() if lead else 0)
        sentences = []
        for part in _SENTENCE_END.split(text[start:end]):
            line = first_line + text.count("\n", 0, text.index(part, start))
            if re.search("[a-z]", part):
                sentences.append(Sentence(f"{file}:{line}", " ".join(part.split())))
        yield sentences
        begin = end


def page_paragraphs(page: str) -> Iterator[list[Sentence]]:
    """Yield the paragraphs of a page, without its generated blocks."""
    return split_paragraphs(_GENERATED.sub(blank, prose(page)), page)


def header_paragraphs(header: str) -> Iterator[list[Sentence]]:
    """Yield the paragraphs of the comments of a C header."""
    for line, comment in comments_by_line(ROOT / header).items():
        yield from split_paragraphs(without_markup(comment), header, line)


def find_choppy_triples(paragraphs: Iterable[list[Sentence]]) -> list[str]:
    """Return a message with the shortest triples of short sentences without a connective, if there are too many."""
    triples = [each[i : i + 3] for each in paragraphs for i in range(len(each) - 2)]
    choppy = [triple for triple in triples if all(sentence.is_choppy for sentence in triple)]
    choppy.sort(key=lambda triple: sum(len(sentence.words) for sentence in triple))
    lines = [f"{triple[0].place}: {' '.join(sentence.text for sentence in triple)}" for triple in choppy]
    return list_excess("triples of short sentences without a connective", lines, len(triples), CHOPPY_TRIPLES_MAX)


def find_conditions(paragraphs: Iterable[list[Sentence]]) -> list[str]:
    """Return a message with the sentences that begin with "If", if there are too many."""
    sentences = list(chain.from_iterable(paragraphs))
    lines = [f"{each.place}: {each.text}" for each in sentences if each.words[0] == "if"]
    return list_excess('sentences that begin with "If"', lines, len(sentences), IF_SENTENCES_MAX)


def list_excess(subject: str, lines: list[str], total: int, limit: float) -> list[str]:
    """Return a message with the lines, if they are more than a limit in percent of all."""
    percent = 100 * len(lines) / max(total, 1)
    if percent <= limit:
        return []
    more = [f"and {len(lines) - FAULTS_SHOWN} more"] * (len(lines) > FAULTS_SHOWN)
    return ["\n    ".join([f"{percent:.1f} % {subject}, at most {limit:.0f} %:", *lines[:FAULTS_SHOWN], *more])]


def find_pronoun_faults(paragraphs: Iterable[list[Sentence]], most: float = PRONOUNS_MAX) -> list[str]:
    """Return a message if the sentences have too few or too many pronouns, with the sentences that have most."""
    sentences = list(chain.from_iterable(paragraphs))
    rate = 1000 * sum(each.pronouns for each in sentences) / max(sum(len(each.words) for each in sentences), 1)
    if PRONOUNS_MIN <= rate <= most:
        return []
    message = f"{rate:.1f} pronouns in 1,000 words, write {PRONOUNS_MIN:.0f} to {most:.0f}"
    if rate < PRONOUNS_MIN:
        return [message]
    worst = sorted(sentences, key=lambda each: each.pronouns, reverse=True)[:FAULTS_SHOWN]
    return ["\n    ".join([f"{message}:", *(f"{each.place}: {each.text}" for each in worst)])]


GROUPS = {
    "guides": [page for page in PAGES if page.startswith("docs/guides/")],
    "how-tos": [page for page in PAGES if page.startswith("docs/howto/")],
    "internals": [page for page in PAGES if page.startswith("docs/internals/")],
}
GROUPS["other pages"] = sorted(set(PROSE_PAGES).difference(*GROUPS.values()))
GROUPS["C headers"] = [str(header.relative_to(ROOT)) for header in headers()]
#: Groups of specifications, whose sentences have more relative clauses.
SPECIFICATIONS = {"internals", "C headers"}


def group_paragraphs(group: str) -> list[list[Sentence]]:
    split = header_paragraphs if group == "C headers" else page_paragraphs
    return list(chain.from_iterable(map(split, GROUPS[group])))


@each_case("page", PROSE_PAGES)
def test_sentences_of_a_page_are_joined(page: str) -> None:
    paragraphs = list(page_paragraphs(page))
    if sum(map(len, paragraphs)) >= MEASURED_SENTENCES_MIN:
        faults = [*find_choppy_triples(paragraphs), *find_conditions(paragraphs)]
        assert not faults, "\n".join([f"{page}:", *faults])


def test_sentences_of_header_comments_are_joined() -> None:
    paragraphs = group_paragraphs("C headers")
    faults = [*find_choppy_triples(paragraphs), *find_conditions(paragraphs)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("group", GROUPS)
def test_sentences_of_a_group_have_enough_and_not_too_many_pronouns(group: str) -> None:
    most = PRONOUNS_MAX_IN_SPECIFICATIONS if group in SPECIFICATIONS else PRONOUNS_MAX
    faults = find_pronoun_faults(group_paragraphs(group), most)
    assert not faults, "\n".join([f"{group}:", *faults])


def examined(text: str) -> list[list[Sentence]]:
    return list(split_paragraphs(without_markup(text), "page.md"))


def test_short_sentences_without_connective_are_listed_with_page_and_line() -> None:
    paragraph = "The whole ring is full. The send fails.\nThe counter of this handle grows. No reader sees that."
    assert find_choppy_triples(examined(f"The first paragraph.\n\n{paragraph}")) == [
        "100.0 % triples of short sentences without a connective, at most 5 %:\n"
        "    page.md:3: The send fails. The counter of this handle grows. No reader sees that.\n"
        "    page.md:3: The whole ring is full. The send fails. The counter of this handle grows."
    ]


@each_case(
    "second",
    [
        "The send fails, because no slot is free.",
        "The send fails: no slot is free.",
        "The send then fails.",
        "The send of this publisher fails without a change of any file or counter.",
    ],
)
def test_triple_with_a_connective_or_a_long_sentence_is_no_fault(second: str) -> None:
    assert find_choppy_triples(examined(f"The ring is full. {second} The counter grows.")) == []


def test_short_sentences_of_different_list_items_are_no_fault() -> None:
    assert find_choppy_triples(examined("- The ring is full.\n- The send fails.\n- The counter grows.")) == []


def test_conditions_at_the_beginning_are_listed_with_page_and_line() -> None:
    assert find_conditions(examined("1. Send it.\n2. If it fails,\n   send it again.")) == [
        '50.0 % sentences that begin with "If", at most 8 %:\n    page.md:2: If it fails, send it again.'
    ]
    assert find_conditions(examined("Send it again if it fails.")) == []


def test_long_list_of_faults_is_cut() -> None:
    (message,) = find_conditions(examined("If it fails, wait. " * (FAULTS_SHOWN + 2)))
    assert message.endswith("wait.\n    and 2 more")


def test_too_few_and_too_many_pronouns_are_faults() -> None:
    assert find_pronoun_faults(examined("The ring has room.")) == ["0.0 pronouns in 1,000 words, write 15 to 35"]
    assert find_pronoun_faults(examined("The end.\n\nIt waits.")) == [
        "250.0 pronouns in 1,000 words, write 15 to 35:\n    page.md:3: It waits.\n    page.md:1: The end."
    ]
    assert find_pronoun_faults(examined(f"It waits{' for messages' * 20}.")) == []


def test_tables_code_and_addresses_are_no_sentences() -> None:
    text = "```\nIf a. If b.\n```\n# If c\n\n| If d. If e. |\n\nSee [the\npage](if.md) of `If f.\nIf g`. The end."
    assert examined(text)[-1] == [Sentence("page.md:8", "See [the page of X."), Sentence("page.md:10", "The end.")]
    assert sum(map(len, examined(text))) == 2
