"""Questions and answers through mailboxes. Questions wait in the mailbox before the calculator starts.

python -m examples.calculator
"""

from __future__ import annotations

import json

import msgq
from examples.processes import finish, say, start

CUSTOMERS = {"Ann": [1, 2, 3], "Ben": [10, 20]}


def customer(name: str, numbers: list[int]) -> None:
    """Ask for a sum. Create the mailbox for the answer before the question is sent."""
    with msgq.Node(name) as node:
        answers = node.create_mailbox("answers")
        question = {"from": name, "numbers": numbers}
        node.open_mailbox("calculator", "questions").send(json.dumps(question).encode())
        answer = answers.receive(timeout=20)
        assert answer is not None, f"{name} got no answer"
        say(f"{name}: {' + '.join(map(str, numbers))} = {answer.decode()}")


def calculator() -> None:
    """Answer one question per customer. `history` delivers the questions that were sent before the start."""
    with msgq.Node("calculator") as node:
        questions = node.create_mailbox("questions", history=64)
        for _ in CUSTOMERS:
            message = questions.receive(timeout=20)
            assert message is not None, "no question within 20 s"
            question = json.loads(message)
            answers = node.open_mailbox(question["from"], "answers")
            answers.send(str(sum(question["numbers"])).encode())


def main() -> None:
    """Start the customers. When a question waits in the mailbox, start the calculator."""
    with msgq.Node("calculator") as node:
        questions = node.create_mailbox("questions", create=True)
        for name in CUSTOMERS:  # an error if a mailbox exists: the example would remove it
            msgq.Node(name).create_mailbox("answers", create=True).close()
        try:
            customers = [start(customer, name, numbers) for name, numbers in CUSTOMERS.items()]
            questions.receive(timeout=20)
            questions.close()  # a mailbox has one owner at a time
            finish(start(calculator), *customers)
        finally:
            for name in CUSTOMERS:
                node.open_mailbox(name, "answers")
            for channel in node.channels.values():
                channel.unlink()


if __name__ == "__main__":
    main()
