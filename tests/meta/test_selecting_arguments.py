"""Each public argument that selects takes one text or a list of texts, and never everything for an empty list.

`msgq.common.selection` has the rule. A new argument with names needs an entry in `CASES`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.bridge import Bridge
from msgq.errors import InvalidValueError
from msgq.recording import LogReader, Player, Recorder, Schemas, compare
from tests.cases import each_case
from tests.recording.logs import write_log

PUBLIC_PACKAGES = ("msgq", "msgq.recording", "msgq.bridge", "msgq.simulation", "msgq.stats", "visionipc")
#: Modules with public functions that need a session of Spark, so only their signatures are checked.
SPARK_FILES = ("spark/source/read.py", "spark/lake/lake.py", "spark/lake/fleet.py", "spark/tables/align.py")
#: Annotations of arguments with names, patterns or paths.
SEVERAL_NAMES = re.compile(r"(Iterable|Sequence|Collection|Container|list|tuple|set)\[(str|EndpointPattern)\b(?! *,)")
ONE_NAME = re.compile(r"(^|\| *)(str|EndpointPattern|EndpointChoice)\b")

Use = Callable[[Any, Path], Any]  # passes the argument to a function, and returns the selected names


def use_recorder(**options: Any) -> list[str]:
    with msgq.pub_sock("name") as pub, msgq.pub_sock("other") as other, Recorder(**options) as recorder:
        pub.send(b"a")
        other.send(b"b")
    assert recorder.stats().lost == 0
    return sorted(LogReader(options["path"]).endpoints)


def read_log(folder: Path, **options: Any) -> LogReader:
    path = folder / "read.mcap"
    if not path.exists():
        write_log(path, ("name", 0, b"a"), ("other", 0, b"b"))
    return LogReader(path, **options)


def play_log(folder: Path, choice: Any) -> list[str]:
    with Player(read_log(folder), wait_for_readers=choice) as player:
        return list(player._awaited_endpoints)


def use_bridge(choice: Any) -> list[str]:
    with Bridge(choice) as bridge:
        return ["name"] if "name" in bridge._out else []


def use_submaster(option: str, choice: Any, _: Path) -> list[str]:
    sm = msgq.SubMaster(["name", "other"], connect=False, **{option: choice})
    sm.alive["name"] = sm.valid["other"] = sm.valid["name"] = False
    if option.startswith("ignore"):
        needed = {"ignore_alive": sm._topics_needing_alive, "ignore_avg_freq": sm._topics_needing_freq}
        return sorted({"name", "other"} - needed.get(option, sm._topics_needing_valid))
    return [name for name, topic in sm._topics.items() if (topic.keep_all if option == "keep_all" else topic.is_polled)]


def check_topics(check: str, choice: Any, _: Path) -> list[str]:
    sm = msgq.SubMaster(["name", "other"], connect=False)
    getattr(sm, check)(choice)
    return sm._topics.select_topics(choice)


def wait_for_readers(choice: Any) -> list[str]:
    waited: list[str] = []
    with msgq.PubMaster(["name", "other"]) as pm:
        for name, socket in pm._sockets.items():
            pm._sockets[name] = type("Socket", (), {"close": socket.close, "wait_for_readers": _note(waited, name)})()
        pm.wait_for_readers(choice)
    return waited


def _note(waited: list[str], name: str) -> Any:
    return lambda *_, **__: waited.append(name)


ALL = ["name", "other"]
NOTHING: list[str] = []
ERROR = InvalidValueError
#: A call with an argument, and the meaning of an empty list, by argument.
CASES: dict[str, tuple[Use, Any]] = {
    "msgq.PubMaster.topics": (lambda choice, _: list(msgq.PubMaster(choice)), NOTHING),
    "msgq.PubMaster.wait_for_readers.topics": (lambda choice, _: wait_for_readers(choice), NOTHING),
    "msgq.SubMaster.topics": (lambda choice, _: list(msgq.SubMaster(choice, connect=False)), NOTHING),
    **{
        f"msgq.SubMaster.{option}": (partial(use_submaster, option), NOTHING)
        for option in ("poll", "ignore_alive", "ignore_avg_freq", "ignore_valid", "keep_all")
    },
    **{
        f"msgq.SubMaster.all_{check}.topics": (partial(check_topics, f"all_{check}"), NOTHING)
        for check in ("alive", "freq_ok", "valid", "checks")
    },
    "msgq.recording.Recorder.endpoints": (lambda choice, path: use_recorder(path=path / "a", endpoints=choice), ERROR),
    "msgq.recording.Recorder.exclude": (
        lambda choice, path: sorted(set(ALL) - {*use_recorder(path=path / "a", exclude=choice)}),
        NOTHING,
    ),
    "msgq.recording.LogReader.endpoints": (
        lambda choice, path: list(read_log(path, endpoints=choice).endpoints),
        ERROR,
    ),
    "msgq.recording.LogReader.exclude": (
        lambda choice, path: sorted(set(ALL) - {*read_log(path, exclude=choice).endpoints}),
        NOTHING,
    ),
    "msgq.recording.LogReader.batches.columns": (
        lambda choice, path: [
            {"endpoint": "name"}[name]
            for name in next(read_log(path).batches("endpoint" if choice == "name" else choice)).schema.names
        ],
        ERROR,
    ),
    "msgq.recording.Player.wait_for_readers": (lambda choice, path: play_log(path, choice), NOTHING),
    "msgq.recording.compare.endpoints": (
        lambda choice, path: list(compare(read_log(path), read_log(path), endpoints=choice).endpoints),
        ERROR,
    ),
    "msgq.recording.Schemas.of_texts.texts": (
        lambda choice, _: ["name" for _ in Schemas.of_texts("json" if choice == "name" else choice)._chosen],
        NOTHING,
    ),
    "msgq.recording.Schemas.of_texts.import_paths": (
        lambda choice, path: Schemas.of_texts([], path if choice == "name" else choice) and [choice] * bool(choice),
        NOTHING,
    ),
    "msgq.bridge.Bridge.out": (lambda choice, _: use_bridge(choice), NOTHING),
}


def iter_public_functions() -> Iterator[tuple[str, Any]]:
    """Yield public functions, and constructors and methods of public classes, each once, by their names."""
    seen = set()
    for package in PUBLIC_PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            if id(value) in seen or not callable(value):
                continue
            seen.add(id(value))
            yield f"{package}.{name}", value
            for member in vars(value) if isinstance(value, type) else ():
                if not member.startswith("_") and callable(getattr(value, member, None)):
                    yield f"{package}.{name}.{member}", getattr(value, member)


def find_selecting_arguments() -> dict[str, str]:
    """Return the annotations of public arguments with names, by the name of the argument."""
    found = {}
    for name, function in iter_public_functions():
        try:
            parameters = inspect.signature(function).parameters
        except ValueError:
            continue
        for parameter in parameters.values():
            annotation = str(parameter.annotation)
            if SEVERAL_NAMES.search(annotation) or "EndpointChoice" in annotation:
                found[f"{name}.{parameter.name}"] = annotation
    return found


def test_each_public_argument_with_names_has_a_case() -> None:
    assert find_selecting_arguments().keys() == CASES.keys()


def test_public_arguments_with_names_accept_one_name() -> None:
    annotations = find_selecting_arguments()
    for file in SPARK_FILES:
        tree = ast.parse((Path(msgq.__file__).parent / file).read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                arguments = [*node.args.args, *node.args.kwonlyargs]
                texts = {f"{file}:{node.name}.{one.arg}": ast.unparse(one.annotation or one) for one in arguments}
                annotations |= {name: text for name, text in texts.items() if SEVERAL_NAMES.search(text)}
    assert len(annotations) > len(CASES)
    assert [name for name, annotation in annotations.items() if not ONE_NAME.search(annotation)] == []


every_case = pytest.mark.parametrize("argument", CASES)


@every_case
@pytest.mark.parametrize("choice", ["name", ["name"]], ids=["text", "list"])
def test_text_and_list_with_text_select_one_name(argument: str, choice: Any, prefix: str, tmp_path: Path) -> None:
    use, _ = CASES[argument]
    if choice != "name" and argument.endswith(("columns", "of_texts.texts", "import_paths")):
        choice = {"columns": ["endpoint"], "texts": ["json"], "import_paths": [tmp_path]}[argument.rpartition(".")[2]]
        assert len(use(choice, tmp_path)) == 1
    else:
        assert use(choice, tmp_path) == ["name"]


@every_case
def test_empty_list_selects_nothing_or_is_an_error(argument: str, prefix: str, tmp_path: Path) -> None:
    use, meaning = CASES[argument]
    if meaning is ERROR:
        with pytest.raises(InvalidValueError, match="is empty and selects nothing; give "):
            use([], tmp_path)
    else:
        assert use([], tmp_path) == meaning


@every_case
@each_case("choice", [[1], b"name", [b"name"], 1])
def test_bytes_and_numbers_are_errors_that_name_the_argument(
    argument: str, choice: Any, prefix: str, tmp_path: Path
) -> None:
    use, _ = CASES[argument]
    with pytest.raises(TypeError, match=re.escape(repr(choice[0] if isinstance(choice, list) else choice))):
        use(choice, tmp_path)
