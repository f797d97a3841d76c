"""Identifiers use the field's words. Banned words are listed with their replacements; functions are named by verbs."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.meta.sources import PACKAGES, ROOT, code, without_comments

#: A word of an identifier or of a file name in the product and its tools -> what to write instead.
BANNED_WORDS = {
    "ailment": "issue",
    "ailments": "issues, or diagnose",
    "astray": "lost, or orphaned",
    "attention": "eventcount",
    "bursts": "batches",
    "census": "summary",
    "curtain": "the stop of a simulation",
    "doze": "sleep",
    "endings": "summary section",
    "excite": "contend",
    "figured": "has_statistics",
    "figures": "stats, metrics, or statistics",
    "flaw": "issue",
    "flaws": "issues",
    "forgiven": "joined_at",
    "forsaken": "has_no_publisher",
    "frenzy": "contended",
    "ground": "base",
    "hub": "channel file, or mq_channel_header",
    "inquire": "probe_begin",
    "inquiry": "liveness probe",
    "lacking": "missing",
    "lifeline": "parent_watch",
    "lookout": "poll_ops",
    "manner": "options",
    "membership": "subscriber_rows",
    "mending": "repair",
    "milestone": "checkpoint",
    "milestones": "checkpoints",
    "onlooker": "observer, or browser",
    "outlet": "writer, or event publisher",
    "outlets": "writers, or playback",
    "outlook": "poll_state",
    "reckon": "check_counts",
    "remains": "cleanup, or leftovers",
    "robbed": "stolen",
    "roster": "row_table",
    "rouse": "interrupt_wait",
    "shelf": "buffer_mru",
    "silences": "dropouts",
    "spelling": "keywords",
    "survey": "classify, scan, or repair_plan",
    "tenant": "client_row",
    "tooling": "common",
    "undated": "without_timestamp",
    "untold": "superseded",
    "usurp": "supersede",
    "withdrawn": "evicted",
    "wrest": "steal",
}
#: Names that have a banned word and stay: public and of other projects.
EXCEPTIONS = {"hub_bytes"}
#: Names of local variables and parameters that say nothing, in Python code of the product and its tools.
BANNED_LOCALS = {
    *("of", "ones", "theirs", "mine", "whose", "whom", "thing", "things", "told", "given", "such"),
    *("known", "wanted", "made", "said"),
}
#: First words of functions that are neither commands nor questions; nouns such as `sent_time` may stay.
BANNED_FUNCTIONS = {
    *("told", "chosen", "made", "given", "taken", "gathered", "widened", "quoted", "opened", "merged", "packed"),
    *("unpacked", "noted", "played", "spared", "found", "gone", "kept", "brought", "done"),
}
#: Private names of one word in msgq and visionipc. Each is a standard verb, or says what its class is about.
ONE_WORD_PRIVATE = {
    *("_SNDMORE", "_libc", "_logger", "_reader", "_reconnect", "_stream", "_subscribe"),
}

_STORY_ALONE = re.compile(r"_*([a-z]+)")


def sources() -> Iterator[Path]:
    """Return the sources of the product and its tools."""
    endings = {".py", ".pyx", ".pxi", ".pxd", ".pyi", ".h", ".c", ".cpp"}
    for folder in (*PACKAGES, ROOT / "msgq_demo", ROOT / "tools"):
        yield from (path for path in sorted(folder.rglob("*")) if path.suffix in endings)


def split_words(identifier: str) -> list[str]:
    """Return the words of snake_case, CamelCase and UPPER_CASE in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)]


def identifiers(path: Path) -> set[str]:
    if path.suffix in (".h", ".c", ".cpp"):
        text = re.sub(r"//.*|\"(?:\\.|[^\"\\\n])*\"", "", without_comments(path.read_text()))
    else:
        text = code(path)
    return set(re.findall(r"[A-Za-z_]\w*", text))


def python_trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sources():
        if path.suffix == ".py":
            yield path, ast.parse(path.read_text())


def banned_in(name: str) -> list[str]:
    return [word for word in split_words(name) if word in BANNED_WORDS and name not in EXCEPTIONS]


def test_identifiers_have_no_banned_word() -> None:
    wrong = sorted(
        f"{path.relative_to(ROOT)}: {name}: {word} -> {BANNED_WORDS[word]}"
        for path in sources()
        for name in identifiers(path)
        for word in banned_in(name)
    )
    assert not wrong, "\n".join(wrong)


def test_file_names_have_no_banned_word() -> None:
    wrong = [path for path in sources() for part in path.relative_to(ROOT).parts if banned_in(part.partition(".")[0])]
    assert not wrong


def test_function_names_are_not_single_participles() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path, tree in python_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if not any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
        if (first := _STORY_ALONE.match(node.name)) and first[1] in BANNED_FUNCTIONS
    ]
    assert not wrong, "\n".join(wrong)


def private_definitions() -> Iterator[str]:
    """Yield the private functions, classes and module constants of the packages."""
    packages = tuple(str(package) for package in PACKAGES)
    for path, tree in python_trees():
        if not str(path).startswith(packages):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name
        for statement in tree.body:
            if isinstance(statement, ast.Assign):
                yield from (target.id for target in statement.targets if isinstance(target, ast.Name))


def test_private_names_have_at_least_two_words() -> None:
    """A name such as `_text` or `_apply` says nothing without its class."""
    private = {name for name in private_definitions() if name.startswith("_") and not name.startswith("__")}
    one_word = {name for name in private if len(split_words(name)) == 1 and len(name) > 2}
    assert one_word == ONE_WORD_PRIVATE


def test_local_variable_names_are_not_banned() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name}"
        for path, tree in python_trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.arg)
        if (name := node.id if isinstance(node, ast.Name) else node.arg) in BANNED_LOCALS
    ]
    assert not wrong, "\n".join(wrong)


def test_banned_words_are_found_in_each_name_form() -> None:
    assert split_words("mq_queue_hubFileSQL_MAX") == ["mq", "queue", "hub", "file", "sql", "max"]
    assert banned_in("_MAX_SHELF") == ["shelf"]
    assert banned_in("hub_bytes") == []
