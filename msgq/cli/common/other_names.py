"""Commands and options of other tools, with the commands and options of `msgq` that do the same."""

from collections.abc import Sequence

import click

#: Words of msgq by the words of other tools, such as those of ROS 2, mcap, systemd and a shell.
COMMAND_ANSWERS = {
    "bag check": "msgq bag doctor LOG",
    "bag compress": "msgq bag filter LOG --compression zstd -o FILE",
    "bag cut": "msgq bag filter LOG --start TIME --end TIME -o FILE",
    "bag export": "msgq bag convert LOG -o FILE",
    "bag fix": "msgq bag recover LOG",
    "bag play": "msgq play LOG",
    "bag record": "msgq record NAME",
    "bag repair": "msgq bag recover LOG",
    "bag trim": "msgq bag filter LOG --start TIME --end TIME -o FILE",
    "bandwidth": "msgq bw NAME",
    "cat": "msgq echo NAME, or msgq bag cat LOG",
    "cleanup": "msgq clean",
    "convert": "msgq bag convert LOG -o FILE",
    "dashboard": "msgq top, or msgq serve",
    "delete": "msgq clean NAME",
    "export": "msgq bag convert LOG -o FILE",
    "help": "msgq --help",
    "inspect": "msgq info NAME",
    "kill": "msgq clean NAME",
    "latency": "msgq delay NAME",
    "log": "msgq record NAME",
    "ls": "msgq list",
    "monitor": "msgq top",
    "node": "msgq list",
    "param": "msgq echo records/NAME",
    "ps": "msgq list",
    "publish": "msgq pub NAME MESSAGE",
    "purge": "msgq clean NAME",
    "rate": "msgq hz NAME",
    "read": "msgq echo NAME",
    "recover": "msgq bag recover LOG",
    "remove": "msgq clean NAME",
    "replay": "msgq play LOG",
    "report": "msgq lake report PATH",
    "rm": "msgq clean NAME",
    "send": "msgq pub NAME MESSAGE",
    "service": "msgq pub queue/NAME MESSAGE",
    "show": "msgq info NAME",
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
    "ui": "msgq top, or msgq serve",
    "view": "msgq echo NAME",
    "watch": "msgq top",
    "web": "msgq serve",
}
#: The first answer whose option the verb has, or that names no option of the verb, is given.
_OPTION_ANSWERS = {
    "--advertise": ("--wait-for-readers",),
    "--auth": ("--token-file FILE",),
    "--bind": ("--address ADDRESS",),
    "--buffsize": ("--cache-bytes BYTES",),
    "--bytes": ("--raw",),
    "--bz2": ("--compression NAME",),
    "-C": ("--count COUNT",),
    "-c": ("--count COUNT",),
    "--chunk-size": ("--chunk-bytes BYTES",),
    "--chunksize": ("--chunk-bytes BYTES",),
    "--columns": ("--field PATH",),
    "--compress": ("--compression NAME",),
    "--compression-format": ("--compression NAME",),
    "--compression-mode": ("--compression NAME",),
    "--connect": ("--host HOST",),
    "--cors": ("--allow-origin ORIGIN",),
    "--count": ("--rows COUNT",),
    "-d": ("--duration SECONDS",),
    "--delay": ("--interval SECONDS",),
    "--domain": ("--prefix NAME",),
    "--duration": ("--window SECONDS",),
    "--end-nsecs": ("--end TIME",),
    "--end-secs": ("--end TIME",),
    "--every": ("--split-seconds SECONDS", "--interval SECONDS"),
    "--exclude-regex": ("--exclude REGEX",),
    "--exclude-topics": ("--exclude REGEX",),
    "-f": ("--file FILE", "--force"),
    "--fields": ("--field PATH",),
    "--filter": ("--field PATH", "--endpoint NAME", "--regex REGEX"),
    "--fix-all": ("--fix",),
    "--format": ("--to FORMAT", "--csv or --json", "--json"),
    "--frequency": ("--rate RATE",),
    "--from": ("--start TIME",),
    "--full": ("--scan",),
    "--grep": ("--field PATH", "--regex REGEX"),
    "--head": ("--count COUNT",),
    "--hex-dump": ("--hex",),
    "--hexdump": ("--hex",),
    "--hidden": ("--all",),
    "--host": ("--address ADDRESS",),
    "--hz": ("--rate RATE",),
    "-i": ("--interval SECONDS",),
    "--ignore": ("--exclude REGEX",),
    "--include": ("--endpoint NAME", "--regex REGEX"),
    "--include-hidden-topics": ("--all",),
    "--input": ("--file FILE",),
    "--interval": ("--rate RATE", "--duration SECONDS"),
    "--interval-ms": ("--interval SECONDS",),
    "--iterations": ("--count COUNT",),
    "--json-file": ("--file FILE",),
    "--json-output": ("--json",),
    "--keep-alive": ("--count COUNT",),
    "-l": ("--lines",),
    "--limit": ("--count COUNT",),
    "--line-count": ("--count COUNT",),
    "--lines": ("--count COUNT",),
    "--listen": ("--address ADDRESS",),
    "--listen-port": ("--port NUMBER",),
    "--loop": ("--rate RATE",),
    "--lz4": ("--compression lz4",),
    "--max": ("--count COUNT",),
    "--max-bag-duration": ("--split-seconds SECONDS",),
    "--max-bag-size": ("--split-bytes BYTES",),
    "--max-cache-size": ("--cache-bytes BYTES",),
    "--max-messages": ("--count COUNT",),
    "--max-size": ("--split-bytes BYTES",),
    "--max-splits": ("--max-total-bytes BYTES",),
    "--messages": ("--count COUNT",),
    "--min-space": ("--min-free-bytes BYTES",),
    "--name": ("--output PATH",),
    "--namespace": ("--prefix NAME",),
    "--no-color": ("NO_COLOR=1 in the environment",),
    "--noop": ("--dry-run",),
    "--num": ("--count COUNT",),
    "--number": ("--count COUNT",),
    "-O": ("--output PATH",),
    "--out": ("--output PATH",),
    "--output-compression": ("--compression NAME",),
    "--output-dir": ("--output PATH",),
    "--output-format": ("--to FORMAT", "--csv or --json", "--json"),
    "--output-name": ("--output PATH",),
    "-p": ("--port NUMBER",),
    "--password": ("--token-file FILE",),
    "--pause": ("--start-paused",),
    "--paused": ("--start-paused",),
    "--payload-only": ("--raw",),
    "--peer": ("--host HOST",),
    "--period": ("--interval SECONDS", "--rate RATE"),
    "--playback-duration": ("--duration SECONDS",),
    "--playback-until-nsec": ("--end TIME",),
    "--playback-until-sec": ("--end TIME",),
    "--pretty": ("--json",),
    "--raw": ("--format text",),
    "--remote": ("--host HOST",),
    "--remove": ("--fix",),
    "--repair": ("--fix",),
    "--repeat": ("--loops COUNT", "--count COUNT"),
    "--samples": ("--count COUNT",),
    "--seconds": ("--duration SECONDS", "--interval SECONDS"),
    "--since": ("--start TIME",),
    "--size": ("--split-bytes BYTES",),
    "--skip": ("--start TIME",),
    "--snapshot-mode": ("--snapshot-seconds SECONDS",),
    "--speed": ("--rate FACTOR",),
    "--split": ("--split-bytes BYTES",),
    "--start-nsecs": ("--start TIME",),
    "--start-offset": ("--start TIME",),
    "--start-secs": ("--start TIME",),
    "--statistics": ("--scan",),
    "--stdin": ("--lines",),
    "--stdin-file": ("--file FILE",),
    "--stdin-line": ("--lines",),
    "-t": ("--count COUNT",),
    "--text": ("--format text",),
    "--time": ("--duration SECONDS", "--interval SECONDS"),
    "--timeout-ms": ("--timeout SECONDS",),
    "--times": ("--count COUNT",),
    "--to": ("--end TIME",),
    "--token": ("--token-file FILE",),
    "--topic": ("--endpoint NAME",),
    "--topic-name": ("--endpoint NAME",),
    "--topics": ("--endpoint NAME",),
    "--truncate-length": ("--truncate COUNT",),
    "--until": ("--end TIME",),
    "-W": ("--timeout SECONDS",),
    "-w": ("--wait-for-subscribers COUNT",),
    "--wait": ("--wait-for-subscribers COUNT", "--wait-for-readers", "--timeout SECONDS"),
    "--wait-for-all-acked": ("--wait-for-readers",),
    "--wait-for-subscribers": ("--wait-for-readers",),
    "--wait-matching-subscriptions": ("--wait-for-subscribers COUNT",),
    "--watch": ("msgq top",),
    "--window": ("--interval SECONDS",),
    "-y": ("--force",),
    "--yaml": ("--json",),
    "--yes": ("--force",),
    "--zstd": ("--compression zstd",),
}
#: Answers of one verb, which precede those of all verbs.
_VERB_ANSWERS = {
    "bridge --connect": "--host HOST",
    "bridge --from": "--in NAME",
    "bridge --listen": "--bind HOST",
    "bridge --to": "--out NAME",
    "bridge --topic": "--out NAME",
    "bridge --topics": "--out NAME",
    "clean --all": "--all-prefixes",
    "clean -f": "--force",
    "clean -n": "--dry-run",
    "echo --all": "msgq echo '.*'",
    "echo --exclude": "msgq echo PATTERN",
    "echo --follow": "msgq echo NAME, which follows the endpoint",
    "echo --from-beginning": "msgq bag cat LOG",
    "echo --include": "msgq echo PATTERN",
    "echo --last": "msgq bag cat LOG",
    "echo --regex": "msgq echo PATTERN",
    "echo --tail": "msgq bag cat LOG",
    "echo --topic": "msgq echo NAME",
    "echo -t": "msgq echo NAME",
    "hz --all": "msgq hz '.*'",
    "hz --filter": "msgq hz PATTERN",
    "info --follow": "msgq top",
    "info --stats": "msgq stat",
    "list --detail": "msgq info NAME",
    "list --filter": "msgq list PATTERN",
    "list --follow": "msgq top",
    "list --long": "msgq info NAME",
    "list --publishers": "msgq info NAME",
    "list --show-types": "msgq info NAME",
    "list --sort": "msgq top --sort COLUMN",
    "list --stats": "msgq stat",
    "list --subscribers": "msgq info NAME",
    "list --type": "msgq info NAME",
    "list --types": "msgq info NAME",
    "list -l": "msgq info NAME",
    "play --count": "--duration SECONDS",
    "play --fast": "--rate FACTOR",
    "play --force": "--take-over",
    "play --hz": "--clock-rate RATE",
    "play --limit": "--duration SECONDS",
    "play --loop-count": "--loops COUNT",
    "play -p": "--start-paused",
    "play -s": "--start TIME",
    "play -u": "--duration SECONDS",
    "pub --delay": "--rate RATE",
    "pub --hex": "--format hex",
    "pub --message": "msgq pub NAME MESSAGE",
    "pub --once": "--count 1",
    "pub --raw": "--file FILE",
    "pub --timeout-ms": "--timeout SECONDS",
    "pub --topic": "msgq pub NAME MESSAGE",
    "pub --yaml": "--format json",
    "pub -1": "--count 1",
    "pub -m": "msgq pub NAME MESSAGE",
    "pub -s": "--lines",
    "record --include-unpublished-topics": "--all",
    "record --node": "msgq record NAME",
    "record --topics": "msgq record NAME",
    "record -b": "--cache-bytes BYTES",
    "serve --rate": "--interval SECONDS",
    "stages --interval": "--window SECONDS",
    "stat --follow": "msgq stat, which prints a line per second",
    "top --batch": "--once",
    "top --delay": "--interval SECONDS",
    "top --filter": "msgq top PATTERN",
    "top --watch": "--interval SECONDS",
    "top -b": "--once",
    "top -d": "--interval SECONDS",
    "top -s": "--sort COLUMN",
}
#: Share of equal letters above which an unknown option is a misspelt option.
_SIMILARITY_MIN = 0.75


def describe_unknown_command(group: Sequence[str], words: Sequence[str], existing: Sequence[str]) -> str:
    """Return the error for a command that does not exist.

    Args:
        group: words after `msgq` that name a group of commands.
        words: words after the group. The first word is not a command.
        existing: commands of the group.
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
    name, context = error.option_name, error.ctx
    if context is None:
        return error.format_message()
    if isinstance(context.command, click.Group):
        return f"no option {name!r} before the command; give options after the command"
    existing = [text for option in context.command.params for text in option.opts if text.startswith("-")]
    for answer in (_VERB_ANSWERS.get(f"{context.info_name} {name}", ""), *_OPTION_ANSWERS.get(name, ())):
        if answer and (not answer.startswith("-") or answer.split()[0] in existing):
            return f"no option {name!r}; use: {answer}"
    if near := _find_similar_options(name, existing):
        return f"no option {name!r}; did you mean {' or '.join(near)}?"
    verb = context.command_path.partition(" ")[2]
    return f"no option {name!r}; run `msgq {verb} --help`"


def _find_similar_options(name: str, existing: Sequence[str]) -> list[str]:
    """Return the options of which `name` is a beginning, an extension or a misspelling."""
    import difflib  # only errors need it

    word = name.lstrip("-")
    words = {option.removeprefix("--"): option for option in existing if option.startswith("--")}
    if len(word) < 2:
        return []
    extended = [option for text, option in words.items() if text.startswith(word) or word.startswith(f"{text}-")]
    return extended or [words[text] for text in difflib.get_close_matches(word, words, cutoff=_SIMILARITY_MIN)]
