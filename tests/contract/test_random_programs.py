"""Random programs have the same answers on shared memory and on the fake backend, lost messages included."""

from __future__ import annotations

import pytest

from tests.contract.channel_programs import CHANNELS
from tests.contract.queue_programs import QUEUES
from tests.contract.random_programs import Failure, Kind
from tests.contract.record_programs import BOARDS, VECTORS
from tests.contract.topic_programs import TOPICS, TopicMachine

#: Kinds, and the number of programs with one seed.
PROGRAMS = {
    "TOPICS": (TOPICS, 50),
    "CHANNELS": (CHANNELS, 50),
    "QUEUES": (QUEUES, 50),
    "VECTORS": (VECTORS, 25),
    "BOARDS": (BOARDS, 25),
}
AGAIN = """program {number} of seed {seed} has different answers. Run its shortest part again:

from {module} import {name}
print({name}.describe_difference('''\\
{lines}
'''.splitlines(), "{token}"))
"""


@pytest.mark.seeds(1, 10, 200)
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_programs_have_equal_answers_on_shared_memory_and_fake(token: str, seed: int, name: str) -> None:
    kind, count = PROGRAMS[name]
    for number in range(count):
        program = kind.make_program(f"{seed} {number}")
        if kind.differs(program, token):
            lines, module = kind.describe_difference(program, token), kind.machine.__module__
            pytest.fail(AGAIN.format(number=number, seed=seed, module=module, name=name, lines=lines, token=token))


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_operation_of_random_programs_succeeds_in_some_program(token: str, name: str) -> None:
    kind, count = PROGRAMS[name]
    programs = [kind.make_program(number) for number in range(4 * count)]
    succeeded = {
        line.operation
        for program in programs
        for line, (answer, _) in zip(program, kind.machine("msgq", token).run(program), strict=True)
        if not isinstance(answer, Failure)
    }
    assert succeeded >= set(kind.operations)


def test_different_answers_are_reduced_to_shortest_program(token: str) -> None:
    class WrongMachine(TopicMachine):
        """Takes a message of 64 bytes from the subscribers of one backend."""

        def message(self, number: int, size: int) -> bytes:
            return super().message(number, 0 if size == 64 and self.backend.__name__.endswith("fake") else size)

    program = [
        "pub1 = pub('a', 1024)",
        "sub2 = sub('a')",
        "sub3 = sub('b')",
        "pub1.send(message(4, 8))",
        "pub1.send(message(5, 64))",
        "sub3.receive(True)",
    ]
    kind: Kind = TOPICS._replace(machine=WrongMachine)
    description = kind.describe_difference(program, token).splitlines()
    assert [line for line in description if line[0] != " "] == [program[0], program[4]]
    assert description[-2].startswith("    # msgq: (None, ")
    assert kind.describe_difference(description, token).splitlines() == description
