"""Questions and answers by mailboxes: questions are in the calculator's before it comes.

python -m examples.calculator
"""

from __future__ import annotations

import json

import msgq
from examples.processes import finish, say, start

CUSTOMERS = {"Ann": [1, 2, 3], "Ben": [10, 20]}


def customer(name: str, numbers: list[int]) -> None:
    """Ask for a sum. One's own mailbox is there before the question, so that the answer finds it."""
    with msgq.Node(name) as node:
        answers = node.create_mailbox("answers")
        question = {"from": name, "numbers": numbers}
        node.open_mailbox("calculator", "questions").send(json.dumps(question).encode())
        answer = answers.receive(timeout=20)
        assert answer is not None, f"{name} got no answer"
        say(f"{name}: {' + '.join(map(str, numbers))} = {answer.decode()}")


def calculator() -> None:
    """Answer as many questions as there are customers; `history` has those that came first."""
    with msgq.Node("calculator") as node:
        questions = node.create_mailbox("questions", history=64)
        for _ in CUSTOMERS:
            message = questions.receive(timeout=20)
            assert message is not None, "nobody asks"
            question = json.loads(message)
            answers = node.open_mailbox(question["from"], "answers")
            answers.send(str(sum(question["numbers"])).encode())


def main() -> None:
    """Start the customers, and the calculator when a question waits in its mailbox."""
    with msgq.Node("calculator") as node:
        questions = node.create_mailbox("questions", create=True)
        for name in CUSTOMERS:  # none is there so far, or it is not ours to remove
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
