"""One word for each thing in all verbs, and answers for the words of other tools."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

import msgq
from msgq.cli.app import app
from msgq.cli.common import other_names
from msgq.stats import topic
from tests.cases import each_case
from tests.command import run, start
from tests.meta.test_verbs import list_verbs
from tests.support import DEADLINE

OPTIONS = [
    (" ".join(path), option)
    for path, verb in list_verbs(app)
    for option in verb.params
    if isinstance(option, click.Option)
]
#: Words of options, and the only word that the command uses instead.
OTHER_WORDS = {
    "--seconds": "--duration",
    "--time": "--duration",
    "--every": "--interval",
    "--period": "--interval",
    "--messages": "--count",
    "--number": "--count",
    "--num": "--count",
    "--limit": "--count",
    "--hz": "--rate",
    "--frequency": "--rate",
    "--clock-hz": "--clock-rate",
    "--format-json": "--json",
}


def test_options_of_all_verbs_have_one_word_for_each_thing() -> None:
    assert [(verb, text) for verb, option in OPTIONS for text in option.opts if text in OTHER_WORDS] == []
    without_short_name = [verb for verb, option in OPTIONS if "--count" in option.opts and "-n" not in option.opts]
    assert without_short_name == []
    assert {option.metavar for _, option in OPTIONS if "--duration" in option.opts} == {"SECONDS"}


# ---- words of other tools ----


def resolve(words: list[str]) -> Iterator[str]:
    """Yield the words of a command line that name commands."""
    command: click.Command | None = app
    while isinstance(command, click.Group) and words:
        name, *words = words
        command = command.get_command(click.Context(command), name)
        if command is not None:
            yield name


@each_case("text, answer", other_names.COMMAND_ANSWERS.items())
def test_word_of_another_tool_is_answered_with_existing_command(text: str, answer: str) -> None:
    done = run(*text.split(), "name", code=2)
    assert done.output == f"Error: no command {text!r}; use: {answer}\n"
    assert len([*resolve(text.split())]) < len(text.split()), "the word is a command"
    for command in answer.split(", or "):
        words = command.split()
        assert words[0] == "msgq"
        assert words[1:] == ["--help"] or len([*resolve(words[1:])]) >= 1
        if words[1] in ("bag", "lake"):
            assert len([*resolve(words[1:])]) == 2


def test_about_twenty_words_of_other_tools_are_answered() -> None:
    wanted = "topic list,topic echo,topic hz,bag play,bag record,node,tail,report,sub,subscribe,publish,monitor,ls"
    wanted += ",stats,param,service,inspect,watch,help,bag cut,bag export,dashboard"
    assert set(wanted.split(",")) <= other_names.COMMAND_ANSWERS.keys()


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("ehco x", "no command 'ehco'; did you mean echo"),
        ("bag inf x", "no command 'bag inf'; did you mean info?"),
        ("lake qsl", "no command 'lake qsl'; did you mean sql?"),
        ("fly", "no command 'fly'; run `msgq --help`"),
        ("bag fly", "no command 'bag fly'; run `msgq bag --help`"),
        ("topic fly", "no command 'topic'; use: msgq list"),
    ],
)
def test_unknown_command_suggests_similar_command(words: str, text: str) -> None:
    (line,) = run(*words.split(), code=2).output.splitlines()
    assert line.startswith(f"Error: {text}")


@each_case(
    "words, answer",
    [
        ("record --all --seconds 5", "--duration SECONDS"),
        ("stat --seconds 5", "--duration SECONDS"),
        ("bridge --seconds 5", "--interval SECONDS"),
        ("echo x --max-messages 5", "--count COUNT"),
        ("pub x y --hz 5", "--rate RATE"),
        ("stages --duration 5", "--window SECONDS"),
        ("list --interval 5", "--duration SECONDS"),
        ("bag split x --every 5", "--split-seconds SECONDS"),
        ("list --namespace x", "--prefix NAME"),
        ("play x --start-offset 5", "--start TIME"),
        ("echo x --truncate-length 5", "--truncate COUNT"),
        ("play x --speed 2", "--rate FACTOR"),
        ("play x --repeat 2", "--loops COUNT"),
        ("play x --paused", "--start-paused"),
        ("play x --from 2", "--start TIME"),
        ("play x --until 2", "--end TIME"),
        ("pub x y --interval 1", "--rate RATE"),
        ("pub x y --repeat 5", "--count COUNT"),
        ("pub x y --wait", "--wait-for-subscribers COUNT"),
        ("serve --host ::1", "--address ADDRESS"),
        ("serve --bind ::1", "--address ADDRESS"),
        ("echo x --head 5", "--count COUNT"),
        ("echo x --format json", "--csv or --json"),
        ("echo x --fields a", "--field PATH"),
        ("echo x --bytes", "--raw"),
        ("hz x --period 1", "--interval SECONDS"),
        ("list --format json", "--json"),
        ("list --sort name", "msgq top --sort COLUMN"),
        ("list --watch", "msgq top"),
        ("bag convert x --format csv", "--to FORMAT"),
        ("bag filter x --include imu", "--endpoint NAME"),
        ("bag filter x --out y", "--output PATH"),
        ("record --include imu", "--regex REGEX"),
        ("record --all --max-size 5", "--split-bytes BYTES"),
        ("record --all --ignore x", "--exclude REGEX"),
        ("clean x --yes", "--force"),
        ("doctor --repair", "--fix"),
        ("record --all -O x", "--output PATH"),
        ("record --all -d 5", "--duration SECONDS"),
        ("record --all --split", "--split-bytes BYTES"),
        ("record --all --max-cache-size 5", "--cache-bytes BYTES"),
        ("record --all --lz4", "--compression lz4"),
        ("record --topics x", "msgq record NAME"),
        ("play x --hz 100", "--clock-rate RATE"),
        ("play x --playback-duration 5", "--duration SECONDS"),
        ("play x --advertise 5", "--wait-for-readers"),
        ("echo x --follow", "msgq echo NAME, which follows the endpoint"),
        ("echo x --from-beginning", "msgq bag cat LOG"),
        ("echo x -t y", "msgq echo NAME"),
        ("echo x -C 5", "--count COUNT"),
        ("echo x -W 5", "--timeout SECONDS"),
        ("echo x --payload-only", "--raw"),
        ("echo x --no-color", "NO_COLOR=1 in the environment"),
        ("pub x y --once", "--count 1"),
        ("pub x y -1", "--count 1"),
        ("pub x y --stdin-line", "--lines"),
        ("pub x y -f z", "--file FILE"),
        ("pub x y --yaml", "--format json"),
        ("hz x --window 5", "--interval SECONDS"),
        ("list --show-types", "msgq info NAME"),
        ("list --follow", "msgq top"),
        ("top --delay 1", "--interval SECONDS"),
        ("top -b", "--once"),
        ("clean x -f", "--force"),
        ("clean x -n", "--dry-run"),
        ("serve --token x", "--token-file FILE"),
        ("bridge --connect x", "--host HOST"),
        ("stages --interval 5", "--window SECONDS"),
    ],
)
def test_option_of_another_tool_is_answered_with_option_of_same_verb(words: str, answer: str) -> None:
    name = next(word for word in words.split() if word.startswith("-") and word != "--all")
    assert run(*words.split(), code=2).output.splitlines()[-1] == f"Error: no option {name!r}; use: {answer}"


def find_verb(name: str) -> click.Command:
    """Return the verb with a name such as "echo", also a verb of a group."""
    return next(verb for path, verb in list_verbs(app) if path[-1] == name)


def list_options(verb: click.Command) -> set[str]:
    return {text for option in verb.params for text in option.opts if text.startswith("-")}


@each_case("words, answer", other_names._VERB_ANSWERS.items())
def test_answer_of_a_verb_replaces_an_option_that_the_verb_lacks(words: str, answer: str) -> None:
    verb, option = words.split()
    existing = list_options(find_verb(verb))
    assert option not in existing
    assert not answer.startswith("-") or answer.split()[0] in existing


@each_case("option, answers", other_names._OPTION_ANSWERS.items())
def test_answer_of_all_verbs_is_an_option_of_a_verb_that_lacks_the_word(option: str, answers: tuple[str, ...]) -> None:
    lacking = [options for _, verb in list_verbs(app) if option not in (options := list_options(verb))]
    assert all(any(answer.split()[0] in options for options in lacking) for answer in answers if answer[0] == "-")


@each_case(
    "words, near",
    [
        ("list --prefx x", "--prefix"),
        ("echo x --cuont 5", "--count"),
        ("clean x --dry", "--dry-run"),
        ("bag filter x --compression-level 5", "--compression"),
    ],
)
def test_misspelt_option_is_answered_with_similar_option(words: str, near: str) -> None:
    assert run(*words.split(), code=2).output.rstrip().endswith(f"; did you mean {near}?")


@each_case(
    "words", ["list --hz 5", "echo x --qos y", "echo x --stamp", "serve --tls", "pub x y --sync", "hz x --verbose"]
)
def test_option_without_counterpart_in_verb_names_help_of_verb(words: str) -> None:
    verb, option = words.split()[0], next(word for word in words.split() if word.startswith("--"))
    done = run(*words.split(), code=2)
    assert done.output.splitlines()[-1] == f"Error: no option {option!r}; run `msgq {verb} --help`"


# ---- durations ----


@pytest.mark.parametrize("verb", ["echo car", "hz car", "bw car", "delay car", "stat", "top"])
def test_duration_option_ends_observing_verb(prefix: str, verb: str) -> None:
    with msgq.pub_sock("car", tracked=True):
        run(*verb.split(), "--duration", "0.05")


@pytest.mark.parametrize("verb", ["echo", "hz", "bw", "delay"])
def test_duration_option_ends_wait_for_missing_endpoint(prefix: str, verb: str) -> None:
    done = run(verb, "nosuch", "--duration", "0.05", code=1)
    assert done.stderr.splitlines()[-1].startswith("Error: no endpoint matches nosuch")


def test_pub_with_duration_option_repeats_message_until_end(prefix: str) -> None:
    run("pub", "car", "x", "-r", "1000", "--duration", "0.05")
    assert 1 <= (topic("car").messages or 0) <= 51
    with start("pub", "car", "x", "-r", "0.001", "--duration", "0.05") as process:  # the second message is never due
        assert process.wait(DEADLINE) == 0
    assert run("pub", "car", "x", "-r", "0.001", "-n", "5", "--duration", "0.05").stderr.startswith("published 1,")


@pytest.mark.parametrize("options", [(), ("-r", "1000")])
def test_pub_whose_duration_is_over_at_once_publishes_one_message(prefix: str, options: tuple[str, ...]) -> None:
    assert run("pub", "car", "x", *options, "--duration", "1e-9").stderr.startswith("published 1,")


def test_option_before_the_command_raises_with_its_place() -> None:
    error = run("--prefix", "x", "list", code=2).output.splitlines()[-1]
    assert error == "Error: no option '--prefix' before the command; give options after the command"
