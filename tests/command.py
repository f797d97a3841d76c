"""The command `msgq`, in this process or in a forked one."""

from __future__ import annotations

import json
import os
import warnings
from itertools import accumulate
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from click.testing import CliRunner, Result

import msgq.cli
from msgq.cli.app import app
from tests.fork_server import ForkedProcess, needs_own_start
from tests.support import DEADLINE, wait_asleep, wait_until

# Modules that verbs import late, because this takes 20 to 200 ms. The fork server imports them once.
_LATE_IMPORTS = {"serve": ["msgq.cli.serve.server_lifetime"], "stat": ["msgq.cli.common.web.access_control"]}
_KINDS = ["msgq.channel.source", "msgq.records.source", "msgq.topic.source", "msgq.workqueue.source", "visionipc"]


def run(*arguments: object, code: int | None = 0, stdin: str | None = None) -> Result:
    """Run `msgq` in this process, check its exit code (None: any) and that it has no traceback; return its result."""
    result = CliRunner().invoke(app, [*map(str, arguments)], input=stdin, catch_exceptions=False)
    assert code in (None, result.exit_code), result.output
    assert "Traceback" not in result.output
    return result


def start(*arguments: object, env: dict[str, str] | None = None, **options: Any) -> Process:
    """Start `msgq` in a forked process. `env` adds variables to the environment; the options are those of `Popen`."""
    return Process([*map(str, arguments)], {**os.environ, **(env or {})}, **options)


def main(*words: str) -> None:
    """In the forked process: run `msgq`, and exit with its code."""
    warnings.simplefilter("ignore", ResourceWarning)  # a signal may come before an iterator is closed
    msgq.cli.main(words)


class Process(ForkedProcess):
    """`msgq` in a process of its own, killed at the end of a `with` block. By default its output goes to pipes."""

    def __init__(self, words: list[str], environment: dict[str, str], **options: Any) -> None:
        assert not needs_own_start(environment), "use subprocess: a forked process ignores these variables"
        modules = accumulate(words[:2], "{}.{}".format, initial="msgq.cli")  # modules of a verb, perhaps in a group
        late = [module for verb in words[:1] for module in _LATE_IMPORTS.get(verb, [])]
        options = {"stdin": DEVNULL, "stdout": PIPE, "stderr": PIPE, "env": environment, **options}
        super().__init__(__name__, "main", words, [*modules, *_KINDS, *late], **options)

    def wait_opened(self, *parts: str) -> None:
        """Return when the process has mapped a file with each of these parts in its path, and waits."""
        maps = Path(f"/proc/{self.pid}/maps")

        def opened() -> bool:
            assert self.poll() is None, self.communicate()
            return all(part in maps.read_text() for part in parts)

        wait_until(opened, f"{parts} are open")
        wait_asleep(self.pid)

    def line(self) -> Any:
        """Return the JSON object in the next line of the output."""
        assert self.stdout is not None
        line = self.stdout.readline()
        assert line, f"the command ended: {self.communicate()}"
        return json.loads(line)

    def end(self, number: int | None = None) -> tuple[list[Any], str]:
        """Send a signal if one is given; return the objects in the remaining lines, and the standard error."""
        if number is not None:
            self.send_signal(number)
        output, complaints = self.communicate(timeout=DEADLINE)
        assert self.returncode == 0, complaints
        return [json.loads(line) for line in output.splitlines()], complaints

    def __exit__(self, *details: Any) -> None:
        self.kill()
        super().__exit__(*details)
