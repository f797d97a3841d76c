"""`msgq bridge` between two hosts, with a restart of everybody: as loopback addresses, and as network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.fork_server import ForkedProcess
from tests.support import DEADLINE, ROOT, SHM, wait_until

UP, DOWN = "state", "command"  # topics from the first host to the second, and back
ACTOR = "tests.contract.bridge_children"
MAIN = {"msgq": "tests.command", ACTOR: ACTOR}  # the module whose function `main` a forked process calls


@dataclass
class Host:
    """Where processes run: what goes before a command, what its environment has, and the address that others see."""

    address: str
    wrapper: list[str] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)


class Process:
    """`python -m MODULE WORDS` on a host. Tests read its standard output line by line."""

    def __init__(self, stack: ExitStack, host: Host, module: str, *words: str) -> None:
        pipe = subprocess.PIPE
        options: dict[str, Any] = {"env": {**os.environ, **host.environment}, "stdout": pipe, "stderr": pipe}
        self.process: subprocess.Popen[str]
        if host.wrapper:
            command = [*host.wrapper, sys.executable, "-m", module, *words]
            self.process = subprocess.Popen(command, cwd=ROOT, text=True, **options)
        else:
            self.process = ForkedProcess(MAIN[module], "main", words, **options)
        stack.enter_context(self.process)
        stack.callback(self.process.kill)

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"ended: {self.process.communicate()}"
        return json.loads(line)

    def until(self, condition: Callable[[Any], bool]) -> Any:
        """Return the first thing it says of which the condition holds; children have a watchdog, so this ends."""
        while not condition(heard := self.hear()):
            pass
        return heard

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def end(self, number: int) -> list[Any]:
        """Send the signal, and return what was said since; it must end well and in silence."""
        self.process.send_signal(number)
        said, complaints = self.process.communicate(timeout=DEADLINE)
        names = "msgq: matched ", "msgq: no endpoint matches "  # the second one if the bridge is first
        unexpected = [line for line in complaints.splitlines() if not line.startswith(names)]
        assert (self.process.returncode, unexpected) == (0, [])
        return [json.loads(line) for line in said.splitlines()]


class Listener(Process):
    """A subscriber. What it hears of one speaker must be new each time: nothing comes twice, or from a loop."""

    def __init__(self, stack: ExitStack, host: Host, topic: str) -> None:
        super().__init__(stack, host, ACTOR, "listen", topic)
        self._newest: dict[int, int] = {}

    def hear(self) -> Any:
        speaker, number = super().hear()
        assert number > self._newest.get(speaker, -1)
        self._newest[speaker] = number
        return speaker

    def hears(self, speaker: Process) -> None:
        """Return when 20 messages of this speaker have come."""
        for _ in range(20):
            self.until(lambda heard: heard == speaker.process.pid)


@pytest.fixture
def loopback(token: str, tmp_path: Path) -> Iterator[list[Host]]:
    """Prefixes keep the rings apart; so that prefixes do not keep the topics apart, a map says where they are."""
    addresses = ["127.0.0.1", "127.0.0.2"]
    prefixes = [f"pa{token}", f"pb{token}"]
    topics = {UP: _free(addresses[0]), DOWN: _free(addresses[1])}
    lines = [f'"{prefix}/{topic}" = "{uri}"' for prefix in prefixes for topic, uri in topics.items()]
    (tmp_path / "map.toml").write_text("\n".join(lines))
    where = {"MSGQ_ZMQ_MAP": str(tmp_path / "map.toml")}
    yield [
        Host(address, [], {"OPENPILOT_PREFIX": prefix, **where})
        for address, prefix in zip(addresses, prefixes, strict=True)
    ]
    for prefix in prefixes:
        for kind in ("msgq_", "msgqside_"):
            shutil.rmtree(SHM / f"{kind}{prefix}", ignore_errors=True)


def _free(address: str) -> str:
    with socket.socket() as probe:
        probe.bind((address, 0))
        return f"tcp://{address}:{probe.getsockname()[1]}"


@pytest.fixture
def namespaces(token: str) -> Iterator[list[Host]]:
    """Two hosts with their own shared memory and network, and a cable between them: no prefix, no map."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        pytest.skip("needs root, and ip, unshare and nsenter")
    with ExitStack() as stack:
        pids = [_namespace(stack) for _ in range(2)]
        ends = [f"veth{token[1:7]}{i}" for i in range(2)]
        plug = ["ip", "link", "add", ends[0], "netns", str(pids[0]), "type", "veth", "peer", "name", ends[1], "netns"]
        if subprocess.run([*plug, str(pids[1])], check=False).returncode:
            pytest.skip("no virtual cable can be made")
        hosts = []
        for i, pid in enumerate(pids):
            host = Host(f"10.77.0.{i + 1}", ["nsenter", f"--target={pid}", "--net", "--mount", f"--wd={ROOT}"])
            for command in (f"addr add {host.address}/24 dev {ends[i]}", f"link set {ends[i]} up", "link set lo up"):
                subprocess.run([*host.wrapper, "ip", *command.split()], check=True)
            hosts.append(host)
        yield hosts


def _namespace(stack: ExitStack) -> int:
    """Return a process that keeps namespaces with an empty /dev/shm; skip if that may not be."""
    script = "mount -t tmpfs none /dev/shm && echo ready && exec sleep infinity"
    command = ["unshare", "--net", "--mount", "sh", "-c", script]
    keeper = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(keeper.kill)
    assert keeper.stdout is not None
    if not keeper.stdout.readline():
        pytest.skip("namespaces are not permitted")
    return keeper.pid


@pytest.mark.parametrize("network", ["loopback", "namespaces"])
def test_bridge_between_two_hosts_continues_after_restart_of_each_process(
    network: str, request: pytest.FixtureRequest
) -> None:
    one, other = hosts = request.getfixturevalue(network)
    with ExitStack() as stack:

        def bridge(host: Host) -> Process:
            mine, theirs, peer = (UP, DOWN, other) if host is one else (DOWN, UP, one)
            options = ["--out", f"{mine}.*", "--in", f"{theirs}@{peer.address}", "--bind", host.address]
            return Process(stack, host, "msgq", "bridge", *options, "--json", "--interval", "0.5")

        bridges = [bridge(host) for host in hosts]
        speakers = {topic: Process(stack, host, ACTOR, "speak", topic) for topic, host in ((UP, one), (DOWN, other))}
        listeners = {topic: Listener(stack, host, topic) for topic, host in ((UP, other), (DOWN, one))}

        def all_hear() -> None:
            for topic, listener in listeners.items():
                listener.hears(speakers[topic])

        all_hear()
        for topic, host in ((UP, one), (DOWN, other)):  # the publishers
            speakers[topic].kill()
            speakers[topic] = Process(stack, host, ACTOR, "speak", topic)
            all_hear()
        for i, host in enumerate(hosts):  # the bridges
            bridges[i].kill()
            bridges[i] = bridge(host)
            forwarding_again(bridges[i])
            all_hear()
        for topic, host in ((UP, other), (DOWN, one)):  # the subscribers
            listeners[topic].kill()
            listeners[topic] = Listener(stack, host, topic)
            all_hear()
        for speaker in speakers.values():
            speaker.kill()
        check_counts(bridges)


def forwarding_again(bridge: Process) -> None:
    """Wait until a bridge that was started again carries both ways."""
    forwarding: set[str] = set()
    while len(forwarding) < 2:
        flow = bridge.hear()
        if flow["messages"]:
            forwarding.add(flow["topic"])


def check_counts(bridges: list[Process]) -> None:
    """What one bridge sent, the other has received; but for what was sent while one of them was not there."""
    finals = []
    for bridge, number in zip(bridges, (signal.SIGTERM, signal.SIGINT), strict=True):
        finals.append({line["topic"]: line for line in bridge.end(number) if line["final"]})
    for topic, (sender, receiver) in {UP: finals, DOWN: finals[::-1]}.items():
        sent, received = sender[topic], receiver[topic]
        assert (sent["direction"], received["direction"]) == ("out", "in")
        assert received["messages"] > 0
        assert sent["lost"] == sent["dropped"] == received["dropped"] == 0
        assert received["lost"] is None


def test_bridge_pair_counts_every_message(loopback: list[Host]) -> None:
    one, other = loopback
    with ExitStack() as stack:
        receiver = Process(stack, other, "msgq", "bridge", "--in", f"{UP}@{one.address}", "--json", "--interval", "0.1")
        receiver.hear()
        listener = Process(stack, other, ACTOR, "listen", UP)
        sender = Process(stack, one, "msgq", "bridge", "--out", UP, "--json", "--interval", "0.1")
        speaker = Process(stack, one, ACTOR, "speak", UP)
        _, first = listener.hear()
        last = first + 300
        assert [listener.hear()[1] for _ in range(300)] == list(range(first + 1, last + 1))
        speaker.kill()
        sent = sender.end(signal.SIGTERM)[-1]
        heard = 301

        def as_many() -> bool:
            """What the receiver counts is what its subscriber hears."""
            nonlocal heard
            counted = receiver.hear()["messages"]
            while heard < counted:
                listener.hear()
                heard += 1
            return bool(receiver.hear()["messages"] == heard)

        wait_until(as_many)
        received = receiver.end(signal.SIGTERM)[-1]
        assert received["messages"] == heard <= sent["messages"]  # ZMQ takes a moment to find the sender
        assert (sent["lost"], sent["dropped"], received["dropped"]) == (0, 0, 0)
