"""Commands and options of other tools, with the commands and options of `msgq` that do the same."""

from collections.abc import Sequence

import click

#: By the words of another tool, such as those of ROS 2, mcap, systemd and a shell.
COMMAND_ANSWERS = {
    "bag play": "msgq play LOG",
    "bag record": "msgq record NAME",
    "cat": "msgq echo NAME, or msgq bag cat LOG",
    "convert": "msgq bag convert LOG -o FILE",
    "delete": "msgq clean NAME",
    "help": "msgq --help",
    "inspect": "msgq info NAME",
    "kill": "msgq clean NAME",
    "ls": "msgq list",
    "monitor": "msgq top",
    "node": "msgq list",
    "param": "msgq echo records/NAME",
    "ps": "msgq list",
    "publish": "msgq pub NAME MESSAGE",
    "rate": "msgq hz NAME",
    "recover": "msgq bag recover LOG",
    "replay": "msgq play LOG",
    "report": "msgq lake report PATH",
    "rm": "msgq clean NAME",
    "send": "msgq pub NAME MESSAGE",
    "service": "msgq pub queue/NAME MESSAGE",
    "stats": "msgq stat",
    "status": "msgq stat, or msgq doctor",
    "sub": "msgq echo NAME",
    "subscribe": "msgq echo NAME",
    "tail": "msgq echo NAME",
    "topic": "msgq list",
    "topic bw": "msgq bw NAME",
    "topic delay": "msgq delay NAME",
    "topic echo": "msgq echo NAME",
    "topic find": "msgq list PATTERN",
    "topic hz": "msgq hz NAME",
    "topic info": "msgq info NAME",
    "topic list": "msgq list",
    "topic pub": "msgq pub NAME MESSAGE",
    "topics": "msgq list",
    "watch": "msgq top",
}
#: The first form that the command has is the answer.
_OPTION_ANSWERS = {
    "--count": ("--rows COUNT",),
    "--duration": ("--window SECONDS",),
    "--every": ("--split-seconds SECONDS", "--interval SECONDS"),
    "--exclude-regex": ("--exclude REGEX",),
    "--frequency": ("--rate RATE",),
    "--hz": ("--rate RATE",),
    "--interval": ("--duration SECONDS",),
    "--limit": ("--count COUNT",),
    "--max-bag-duration": ("--split-seconds SECONDS",),
    "--max-bag-size": ("--split-bytes BYTES",),
    "--max-messages": ("--count COUNT",),
    "--messages": ("--count COUNT",),
    "--namespace": ("--prefix NAME",),
    "--num": ("--count COUNT",),
    "--seconds": ("--duration SECONDS", "--interval SECONDS"),
    "--start-offset": ("--start TIME",),
    "--time": ("--duration SECONDS", "--interval SECONDS"),
    "--times": ("--count COUNT",),
    "--topic": ("--endpoint NAME",),
    "--topics": ("--endpoint NAME",),
    "--truncate-length": ("--truncate COUNT",),
}


def describe_unknown_command(group: Sequence[str], words: Sequence[str], existing: Sequence[str]) -> str:
    """Return the error for a command that does not exist.

    Parameters
    ----------
    group : words after `msgq` that name a group of commands.
    words : words after the group. The first word is not a command.
    existing : commands of the group.
    """
    name = " ".join((*group, words[0]))
    for text in (" ".join((*group, *words[:2])), name):
        if answer := COMMAND_ANSWERS.get(text):
            return f"no command {text!r}; use: {answer}"
    import difflib  # only errors need it

    if near := difflib.get_close_matches(words[0], existing):
        return f"no command {name!r}; did you mean {' or '.join(near)}?"
    return f"no command {name!r}; run `{' '.join(('msgq', *group, '--help'))}`"


def describe_unknown_option(error: click.NoSuchOption) -> str:
    """Return the error for an option that does not exist."""
    existing = {text for option in error.ctx.command.params for text in option.opts} if error.ctx else set()
    for answer in _OPTION_ANSWERS.get(error.option_name, ()):
        if answer.split()[0] in existing:
            return f"no option {error.option_name!r}; use: {answer}"
    if isinstance(error.ctx and error.ctx.command, click.Group):
        return f"no option {error.option_name!r} before the command; give options after the command"
    return error.format_message()
