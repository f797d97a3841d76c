"""Names and patterns that select nothing: one rule for every verb and option that takes them (docs/guides/cli.md)."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

import msgq
from msgq.cli.app import app
from msgq.monitor.endpoint_selection import EndpointSelection, NoMatchError
from msgq.recording import Writer
from tests.command import run, start
from tests.meta.test_verbs import list_verbs

#: Parameters whose values are names, by what their help shows.
TAKES_NAMES = re.compile(r"NAME|PATTERN|REGEX|SERVER|ENDPOINT|\bRUN\b|\bKEY\b")


@dataclass(frozen=True)
class Case:
    """A verb with an option or argument that takes names.

    Attributes:
        words: the command line. {name} is the name or pattern; {log} and {new} are files.
        code: the exit code.
        waits: the verb says that it waits.
        says: what the verb says; None: the text that is common to all.
    """

    words: str
    code: int = 1
    waits: bool = False
    says: str | None = None


LOOKS = "--once --interval 0.01"
MISSING = {
    "list endpoints": Case("list {name}"),
    "info endpoints": Case("info {name}"),
    "clean endpoints": Case("clean {name}"),
    "stages patterns": Case("stages {name} --window 0.1"),
    "stages patterns --tree": Case("stages {name} --window 0.1 --tree"),
    "stat endpoints": Case(f"stat {{name}} {LOOKS}", waits=True),
    "top endpoints": Case(f"top {{name}} {LOOKS}", waits=True),
    "record endpoints": Case("record {name} --duration 0 -o {new}", waits=True),
    "record regex": Case("record -e {name} --duration 0 -o {new}", waits=True),
    "record frames": Case("record --frames nosuch --duration 0 -o {new}", waits=True, says="frame server 'nosuch"),
    "echo endpoints": Case("echo {name} --timeout 0.01", 3, waits=True),
    "hz endpoints": Case("hz {name} --timeout 0.01", 3, waits=True),
    "bw endpoints": Case("bw {name} --timeout 0.01", 3, waits=True),
    "delay endpoints": Case("delay {name} --timeout 0.01", 3, waits=True),
    "frames view server": Case("frames view nosuch --json", says="frame server 'nosuch"),
    "frames save server": Case("frames save nosuch {new}.png", says="frame server 'nosuch"),
    **{
        f"bag {verb} {option}": Case(f"bag {verb} {{log}} {more} {flag} {{name}}", says="no endpoint of the recording")
        for option, flag in {"names": "--endpoint", "expressions": "-e"}.items()
        for verb, more in {
            "info": "",
            "cat": "",
            "filter": "-o {new}.mcap",
            "convert": "-o {new}.csv",
            "diff": "{log}",
        }.items()
    },
    "schema diff before": Case("schema diff {name} {log}"),
    "schema diff after": Case("schema diff {log} {name}", says="no endpoint of"),
    "bag attachments names": Case("bag attachments {log} -o {new} --name nosuch", says="attachment 'nosuch"),
    "play names": Case("play {log} --rate inf --endpoint {name}", says="no endpoint of the recording"),
    "play expressions": Case("play {log} --rate inf -e {name}", says="no endpoint of the recording"),
    "play remap": Case("play {log} --rate inf --remap {name}:=x", says="remapped endpoint not found"),
    "play compare_endpoints": Case(
        "play {log} --deterministic tests.unit.test_cli_names:send_nothing --idle-timeout 0 --compare-endpoints {name}",
        says="no endpoint of the programs",
    ),
}
#: Parameters that take names, and what they do instead.
APART = {
    **dict.fromkeys(["bag cat schemas", "bag convert schemas", "bag diff schemas", "echo schemas"], "no selection"),
    **dict.fromkeys(["bag diff tolerances", "play tolerances", "lake ingest schemas"], "no selection"),
    **{f"bag {verb} exclude": "excludes" for verb in ("cat", "convert", "diff", "filter", "info")},
    "play exclude": "excludes",
    "record exclude": "excludes",
    "bridge out": "waits until Ctrl-C: see below",
    "bridge into": "waits for a host",
    "check file": "names stand in the file: see below",
    **{
        f"lake {verb} {option}": "needs a lake: tests/lake/test_without_spark.py"
        for verb in ("export", "replay")
        for option in ("names", "expressions", "exclude")
    },
    "lake replay remap": "as play, and needs a lake",
    "lake report runs": "runs of a lake, and needs Spark",
    "play clock_endpoint": "is published",
    "play wait_for": "waits for a subscriber",
    "serve endpoints": "waits until Ctrl-C: tests/serve/test_command.py",
    "serve host_names": "no selection",
    "stat host_names": "no selection",
    "pub endpoint": "is made",
    "pub key": "is made",
    "record trigger": "waits for a message",
}
#: Verbs without names: of all endpoints, of files, of a lake.
NAMELESS = {
    *("bench", "demo", "doctor", "version", "frames bench", "frames list"),
    *(f"bag {verb}" for verb in ("split", "doctor", "list", "merge", "recover", "reindex")),
    *(f"lake {verb}" for verb in ("fleet", "optimize", "sql", "stream", "tables")),
}


def send_nothing() -> None:
    """Send nothing."""


@pytest.fixture
def words(prefix: str, tmp_path: Path) -> Iterator[Callable[[str, str], list[str]]]:
    """A command line, beside a topic and a recording that have other names."""
    with Writer(tmp_path / "log.mcap") as writer:
        writer.write(writer.channel("there"), b"x", 1)
    with msgq.pub_sock("there"):
        yield lambda text, name: [
            word.format(name=name, log=tmp_path / "log.mcap", new=tmp_path / "new") for word in text.split()
        ]


@pytest.mark.parametrize("name", ["nosuch", "nosuch.*"])
@pytest.mark.parametrize("case", MISSING.values(), ids=MISSING)
def test_name_without_match_is_reported_and_sets_exit_code(
    words: Callable[[str, str], list[str]], case: Case, name: str
) -> None:
    done = run(*words(case.words, name), code=case.code)
    said = case.says or "no endpoint matches"
    assert (name if "{name}" in case.words else "nosuch") in done.stderr
    assert said in done.stderr
    assert (f"{said} matches {name} yet; waiting" in done.stderr or "yet; waiting" in done.stderr) == case.waits
    if case.code == 1:
        assert done.stderr.splitlines()[-1].startswith("Error: ")


@pytest.mark.parametrize(
    "verb",
    ["list", "info", "stat --once --interval 0.01", "top --once --interval 0.01", "record --duration 0 -o {new}"],
)
def test_existing_endpoints_are_shown_before_error_for_missing_name(
    words: Callable[[str, str], list[str]], verb: str
) -> None:
    done = run(*words(f"{verb} there nosuch", ""), code=1)
    assert "there" in done.stdout or verb.startswith(("stat", "record"))
    assert "no endpoint matches nosuch; run `msgq list`" in done.stderr
    assert done.stdout


@pytest.mark.parametrize("verb", ["hz", "bw"])
def test_measurement_reports_endpoints_that_never_appeared(words: Callable[[str, str], list[str]], verb: str) -> None:
    done = run(*words(f"{verb} there nosuch.* {LOOKS}", ""), code=1)
    assert "there" in done.stdout
    assert done.stderr.splitlines() == [
        "msgq: no endpoint matches nosuch.* yet; waiting",
        "Error: no endpoint matches nosuch.*; run `msgq list`",
    ]


def test_list_without_endpoints_succeeds(prefix: str) -> None:
    for verb in ("list", "stat --once --interval 0.01", "top --once --interval 0.01", "clean", "stages --window 0.1"):
        run(*verb.split())


def test_delay_of_pattern_omits_endpoints_without_publish_time(prefix: str) -> None:
    with msgq.pub_sock("plain"), msgq.pub_sock("tracked", tracked=True), msgq.pub_sock("also plain"):
        done = run("delay", "*", "--once", "--json", "--interval", "0.3")
        assert [json.loads(line)["endpoint"] for line in done.stdout.splitlines()] == ["tracked"]
        left_out = [line for line in done.stderr.splitlines() if line.startswith("msgq: left out: ")]
        assert [re.sub(r" has no timestamps.*", "", line) for line in left_out] == [
            "msgq: left out: also plain",
            "msgq: left out: plain",
        ]
        assert "plain has no timestamps" in run("delay", "plain", "tracked", "--once", code=1).stderr


def test_delay_of_pattern_without_publish_times_ends_with_one_line(prefix: str) -> None:
    with msgq.pub_sock("plain"), msgq.pub_sock("also plain"):
        (line,) = run("delay", "*", code=1).stderr.splitlines()
        assert line.startswith("Error: nothing to measure: also plain has no timestamps")
        assert line.endswith("; 1 other endpoint left out likewise")


def test_check_command_reports_pattern_without_match(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "expected.toml").write_text('duration = 0.01\n[endpoints."nosuch.*"]\n')
    assert "nosuch.*: no endpoint matches" in run("check", tmp_path / "expected.toml", code=1).stdout


@pytest.mark.ci
def test_bridge_command_reports_pattern_without_match(prefix: str) -> None:
    with start("bridge", "--out", "nosuch.*", "--json", env={"MSGQ_ZMQ_TRANSPORT": "ipc"}) as bridge:
        assert bridge.stderr is not None
        assert bridge.stderr.readline() == "msgq: no endpoint matches nosuch.* yet; waiting\n"
        bridge.end(signal.SIGINT)


# ---- matches of a pattern, and similar names ----

MATCHED = "msgq: matched 2 topics: there, where\n"


@pytest.mark.parametrize(
    "verb",
    [
        *(f"{verb} ?here --once --interval 0.01" for verb in ("hz", "bw", "stat", "top")),
        "echo ?here --duration 0.01",
        "record ?here --duration 0 -o {new}",
        "record -e [tw]here --duration 0 -o {new}",
        "record * -x thing --duration 0 -o {new}",
    ],
)
def test_pattern_reports_what_it_matched(words: Callable[[str, str], list[str]], verb: str) -> None:
    with msgq.pub_sock("where"), msgq.pub_sock("thing"):
        assert MATCHED in run(*words(verb, "")).stderr
        assert "matched" not in run(*words(verb.replace("?here", "there"), ""), code=None).stderr or "?" not in verb


def test_matched_endpoints_are_shortened_and_counted_by_kind(prefix: str) -> None:
    with ExitStack() as stack:
        for number in range(9):
            stack.enter_context(msgq.pub_sock(f"t{number}", 4096))
        assert run("stat", "t*", *LOOKS.split()).stderr == "msgq: matched 9 topics: t0, t1, t2, t3, t4 and 4 more\n"
        stack.enter_context(msgq.Channel("t9"))
        said = run("stat", "t[89]", "channel/*", "t1", *LOOKS.split()).stderr
        assert said == "msgq: matched 2 endpoints: channel/t9, t8\n"


def test_bag_and_play_report_what_pattern_matched(words: Callable[[str, str], list[str]], tmp_path: Path) -> None:
    for verb in ("bag cat {log}", "bag info {log}", "bag filter {log} -o {new}.mcap", "play {log} --remap there:=x"):
        for option in ("--endpoint=th*", "-e=^th"):
            assert "msgq: matched 1 topic: there\n" in run(*words(verb, ""), *option.split("=")).stderr
            (tmp_path / "new.mcap").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "similar"),
    [("ther", "there"), ("thre*", "there"), ("scans", "channel/scans"), ("channel/scan", "channel/scans")],
)
def test_missing_name_is_answered_with_similar_names(
    words: Callable[[str, str], list[str]], name: str, similar: str
) -> None:
    with msgq.Channel("scans"):
        said = run("hz", name, *LOOKS.split(), "--timeout", "0.01", code=3).stderr.splitlines()[0]
        assert said == f"msgq: no endpoint matches {name} yet; waiting (did you mean {similar}?)"
        said = run("info", name, code=1).stderr
        assert said == f"Error: no endpoint matches {name}; did you mean {similar}?\n"
    if similar == "there":
        said = run(*words("bag cat {log} --endpoint {name}", name), code=1).stderr.splitlines()[-1]
        assert said == f"Error: no endpoint of the recording matches {name}; did you mean there?"


def test_hint_never_names_the_endpoint_that_was_missing(prefix: str) -> None:
    """The hint comes from the scan that found nothing, so an endpoint that starts just after it is no similar name."""
    selection = EndpointSelection(["there", "th*"], prefix)
    assert selection.find_existing() == {}
    with msgq.pub_sock("there"):
        assert selection.find_similar_to_unmatched() == []
        with pytest.raises(NoMatchError, match=r"no endpoint matches th\*, there; run `msgq list`"):
            selection.require_matched()
        selection.find_existing()
        selection.require_matched()


# ---- completeness of the table ----


def names_of(command: click.Command) -> Iterator[str]:
    """Yield the parameters of a verb that take names."""
    for one in command.params:
        shown = one.metavar or (one.human_readable_name if isinstance(one, click.Argument) else "")
        selects = one.name in ("names", "remap", "compare_endpoints", "file") or TAKES_NAMES.search(shown)
        if selects and one.name not in ("prefix", "logs") and not (one.name == "file" and shown != "FILE"):
            yield one.name or ""


def test_each_command_parameter_for_names_is_tested_with_missing_name() -> None:
    found = {" ".join(path): list(names_of(verb)) for path, verb in list_verbs(app)}
    parameters = {f"{verb} {name}" for verb, names in found.items() for name in names} - {"frames save file"}
    covered = {" ".join(key.split(" --")[0].split()) for key in MISSING} | APART.keys()
    assert parameters == covered
    assert {verb for verb, names in found.items() if not names} == NAMELESS


def test_new_command_with_name_parameter_is_detected() -> None:
    @click.command()
    @click.argument("which", metavar="NAME")
    @click.option("-x", "--fast", is_flag=True)
    def verb(**_: object) -> None:
        """Stand in for a new verb."""

    assert list(names_of(verb)) == ["which"]
