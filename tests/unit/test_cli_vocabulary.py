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
    wanted += ",stats,param,service,inspect,watch,help"
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


@pytest.mark.parametrize(
    ("words", "answer"),
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
    ],
)
def test_option_of_another_tool_is_answered_with_option_of_same_verb(words: str, answer: str) -> None:
    name = next(word for word in words.split() if word.startswith("--") and word != "--all")
    assert run(*words.split(), code=2).output.splitlines()[-1] == f"Error: no option {name!r}; use: {answer}"


def test_option_without_counterpart_in_verb_is_not_invented() -> None:
    assert "no such option '--hz'" in run("list", "--hz", "5", code=2).output.lower()


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


def test_option_before_the_command_raises_with_its_place() -> None:
    said = run("--prefix", "x", "list", code=2).output.splitlines()[-1]
    assert said == "Error: no option '--prefix' before the command; give options after the command"
