"""The page of benchmarks agrees with the stored result, and the names and commands on the page select their rows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import chain
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.meta.sources import ROOT
from tools.bench.__main__ import main
from tools.bench.cases import Case
from tools.bench.digest import REASONS, SUMMARY
from tools.bench.numbers import SHARES
from tools.bench.page import FOLDER, PAGES, RESULT, draw_pictures, fill_page, select_pages, write_pages
from tools.bench.result import Result
from tools.bench.tables import TABLES, list_words

COMMAND = "python -m tools.bench --only"
PICTURE_BYTES_MAX = 100_000
SVG = "{http://www.w3.org/2000/svg}"
SEND = Case("send_0", "send", "ns", "")
PING = Case("ping", "ping", "ns", "")
STREAM = Case("stream_64", "stream", "rate", "")
QUEUE = Case("queue_open", "open a queue", "ns", "")
BLOCKS = """# Page
<!-- bench:topics -->
old
<!-- /bench -->
By hand.
<!-- bench:queues --><!-- /bench -->
<!-- bench:slower --><!-- /bench -->
<!-- bench:machine --><!-- /bench -->
It takes <!-- bench:send_0 -->99 ns<!-- /bench -->.
"""


def make_sample(case: Case, system: str, *slices: float, p99: float = 0.0, count: int = 400) -> dict[str, object]:
    """Return the sample of an undisturbed repeat. With `p99`, its calls were timed one by one."""
    sample: dict[str, object] = {"case": case.key, "system": system, "repeat": 0, "slices": list(slices)}
    sample |= {"waited": [0.0] * len(slices), "cores": [1.0] * len(slices)}
    if p99:
        times = [slices[0] if share < 0.9 else p99 for share in SHARES]
        sample |= {"latencies": times, "count": count}
    return sample


@pytest.fixture
def result() -> Result:
    """Return a small result: kickmsg is slower, pipe is faster in one row, posix_ipc only at p99, zmq is absent."""
    result = Result({"topics": [SEND, PING, STREAM], "queues": [QUEUE]}, repeats=1, quick=True, peers=[])
    result.machine = {"CPU": "one of the tests"}
    result.versions = {"msgq": "1", "floor": "", "kickmsg": "2", "pipe": "", "posix_ipc": "3"}
    result.absent = {"zmq-ipc": "No module named 'zmq'"}
    result.unsupported = {("queue_open", "pipe"): "nothing is left to be found"}
    result.samples = [
        *(make_sample(SEND, "msgq", 20, 30, 40), make_sample(SEND, "floor", 10, 15, 20)),
        make_sample(SEND, "kickmsg", 40, 60, 80),
        *(make_sample(PING, "msgq", 100, p99=300), make_sample(PING, "floor", 80, p99=100)),
        make_sample(PING, "posix_ipc", 400, p99=200),
        *(make_sample(STREAM, "msgq", 1e6, 2e6), make_sample(STREAM, "pipe", 4e6, 8e6)),
        make_sample(QUEUE, "msgq", 50_000, p99=60_000, count=20),
    ]
    return result


def find_line(text: str, start: str) -> list[str]:
    """Return the cells of the only table line that begins with `start`."""
    (line,) = [each for each in text.splitlines() if each.startswith(f"| {start} |")]
    return line.strip("| ").split(" | ")


def test_page_shows_name_figures_and_ratios_of_each_row(result: Result) -> None:
    page = fill_page(BLOCKS, result)
    systems = ["msgq", "floor", "kickmsg", "zmq-ipc", "pipe", "posix_ipc"]  # zmq-ipc is absent
    head = ["row", "work", *systems, "msgq / floor", "msgq / best peer"]
    assert find_line(page, "row | work | msgq | floor") == head
    cells = ["`send_0`", "send", "30.0 ns", "15.0 ns", "60.0 ns", "-", "-", "-", "2.00", "0.50 (kickmsg)"]
    assert find_line(page, "`send_0`") == cells
    assert "It takes <!-- bench:send_0 -->30.0 ns<!-- /bench -->." in page
    assert "By hand." in page
    assert "old" not in page


def test_table_of_kinds_compares_kinds_without_ratios(result: Result) -> None:
    (case,) = (case for case in TABLES["kinds"].cases if case.key == "kind_ping")
    result.tables["kinds"] = [case]
    result.versions |= {"topic": "1", "channel": "1", "board": "1"}
    result.samples += [make_sample(case, system, 100, p99=200) for system in ("floor", "channel", "topic", "board")]
    page = fill_page("<!-- bench:kinds --><!-- /bench -->", result)
    assert find_line(page, "row | work | topic") == ["row", "work", "topic", "channel", "board", "floor"]
    assert find_line(page, f"`kind_ping` | {case.title} | 100 ns")[2:] == ["100 ns"] * 4
    assert "Percentile curves of topic, channel, board, floor in the rows kind_ping." in page
    assert "kind_ping" not in fill_page("<!-- bench:slower --><!-- /bench -->", result)  # no kind is a peer


def test_page_lists_each_row_in_which_a_peer_is_faster(result: Result) -> None:
    slower = fill_page("<!-- bench:slower --><!-- /bench -->", result)
    assert find_line(slower, "`stream_64` | topics | stream")[3:] == ["4.0x slower than pipe", "-", "unknown"]
    assert find_line(slower, "`ping` | topics | ping")[3:5] == ["-", "1.5x slower than posix_ipc"]
    assert "`send_0`" not in slower  # no peer is faster, and the floor is not a peer


def test_row_is_slower_if_the_difference_is_above_five_percent(result: Result) -> None:
    result.samples += [make_sample(SEND, "posix_ipc", 20 / 1.04, 30 / 1.04, 40 / 1.04)]
    assert "`send_0`" not in fill_page("<!-- bench:slower --><!-- /bench -->", result)
    result.samples[-1] = make_sample(SEND, "posix_ipc", 20 / 1.06, 30 / 1.06, 40 / 1.06)
    slower = fill_page("<!-- bench:slower --><!-- /bench -->", result)
    assert find_line(slower, "`send_0` | topics")[3] == "1.06x slower than posix_ipc"


def test_summary_compares_each_row_with_best_peer_and_floor(result: Result) -> None:
    summary = fill_page("<!-- bench:summary --><!-- /bench -->", result)
    cells = ["send", "30.0 ns", "60.0 ns (kickmsg)", "2.0x faster", "2.0x slower"]
    assert find_line(summary, "topics | send") == ["topics", *cells]
    assert find_line(summary, "topics | stream")[3:] == ["6M/s (pipe)", "4.0x slower", "-"]
    assert "faster in 2 of 3 rows, the same (within 5 %) in 0 rows, and slower in 1 rows" in summary


def test_summary_and_reasons_name_existing_rows() -> None:
    for table, keys in SUMMARY.items():
        assert set(keys) <= {case.key for case in TABLES[table].cases}
    assert set(REASONS) <= set(list_words())


def test_page_shows_switches_and_memory_of_a_bus(result: Result) -> None:
    result.samples[0]["costs"] = {"switches": 1.5, "private": 7 << 20, "shared": 3 << 19}
    page = fill_page(BLOCKS, result)
    assert find_line(page, "`send_0` | 1.50 / 7.0 / 1.5") == ["`send_0`", "1.50 / 7.0 / 1.5"]


def test_page_shows_no_ratio_as_zero(result: Result) -> None:
    result.samples.append(make_sample(STREAM, "kickmsg", 1e9, 2e9))
    page = fill_page(BLOCKS, result)
    assert find_line(page, "`stream_64` | stream")[-1] == "0.001 (kickmsg)"
    assert find_line(page, "`stream_64` | topics")[3] == "1,000x slower than kickmsg, 4.0x slower than pipe"


def test_page_lists_reasons_of_missing_figures(result: Result) -> None:
    page = fill_page(BLOCKS, result)
    assert "- pipe, queue_open: nothing is left to be found" in page
    assert "- zmq-ipc is absent: No module named 'zmq'" in page
    assert "- These values are provisional" in page


def test_page_omits_percentiles_of_too_few_calls(result: Result) -> None:
    page = fill_page(BLOCKS, result)
    assert "| 100 ns / 300 ns / - |" in page  # 400 calls
    assert "| 50.0 us / - / - |" in page  # 20 calls


def write_new_pages(result: Result, folder: Path) -> None:
    """Write the blocks of a result into pages that have only the marks of blocks."""
    for name in PAGES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(BLOCKS)
    result.write(folder / "run.json")
    write_pages(folder / "run.json", folder)


def test_written_pages_have_pictures_with_all_systems_and_alt_text(result: Result, tmp_path: Path) -> None:
    write_new_pages(result, tmp_path)
    page = (tmp_path / "docs/benchmarks.md").read_text()
    pictures = dict(re.findall(r"!\[([^\]]+)\]\((.+?)\)", page))
    assert sorted(pictures.values()) == [
        *("benchmarks/queues-latencies.svg", "benchmarks/topics-latencies.svg", "benchmarks/topics-rounds.svg"),
    ]
    assert any("of msgq, floor, kickmsg, pipe in the rows send_0, stream_64." in text for text in pictures)
    curves = ElementTree.parse(tmp_path / "docs/benchmarks/topics-latencies.svg")
    assert len(curves.findall(f".//{SVG}polyline")) == 3  # msgq, floor, posix_ipc
    ranges = ElementTree.parse(tmp_path / "docs/benchmarks/topics-rounds.svg")
    assert len(ranges.findall(f".//{SVG}circle")) == 5
    assert {"1.5M/s", "6M/s", "60.0 ns"} <= {text.text for text in ranges.iter(f"{SVG}text")}
    write_pages(tmp_path / RESULT, tmp_path)
    assert (tmp_path / "docs/benchmarks.md").read_text() == page


def test_rough_figures_are_only_on_the_page_that_says_so(result: Result, tmp_path: Path) -> None:
    write_new_pages(result, tmp_path)
    assert (tmp_path / "README.md").read_text() == BLOCKS
    result.quick = False
    result.write(tmp_path / "run.json")
    write_pages(tmp_path / "run.json", tmp_path)
    assert "takes <!-- bench:send_0 -->30.0 ns<!-- /bench -->." in (tmp_path / "README.md").read_text()
    assert "provisional" not in (tmp_path / "docs/benchmarks.md").read_text()


def test_page_with_unknown_block_is_refused(result: Result) -> None:
    with pytest.raises(ValueError, match="block 'records' not found"):
        fill_page("<!-- bench:records --><!-- /bench -->", result)


def test_partial_result_leaves_pages_and_pictures_unchanged(result: Result, tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir(parents=True)
    for name in PAGES:
        (tmp_path / name).write_text(BLOCKS)
    del result.tables["queues"]
    result.write(tmp_path / "run.json")
    with pytest.raises(ValueError, match="block 'queues' not found"):
        write_pages(tmp_path / "run.json", tmp_path)
    assert [(tmp_path / name).read_text() for name in PAGES] == [BLOCKS] * len(PAGES)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_result_is_the_same_after_writing_and_reading(result: Result, tmp_path: Path) -> None:
    result.write(tmp_path / "run.json")
    assert vars(Result.read(tmp_path / "run.json")) == vars(result)
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.ci
def test_documentation_agrees_with_stored_result() -> None:
    stored = Result.read(ROOT / RESULT)
    filled = {name: fill_page((ROOT / name).read_text(), stored) for name in PAGES}
    for name in select_pages(stored):
        assert filled[name] == (ROOT / name).read_text(), f"run `python -m tools.bench.page {RESULT}` again"


def test_pictures_agree_with_stored_result_and_are_small() -> None:
    pictures = draw_pictures(Result.read(ROOT / RESULT))
    assert {path.name: path.read_text() for path in (ROOT / FOLDER).glob("*.svg")} == pictures
    assert all(len(picture.encode()) < PICTURE_BYTES_MAX for picture in pictures.values())


def test_tables_of_benchmarks_page_are_all_generated() -> None:
    by_hand = re.sub(r"<!-- bench:.*?<!-- /bench -->", "", (ROOT / "docs/benchmarks.md").read_text(), flags=re.DOTALL)
    assert not [line for line in by_hand.splitlines() if line.startswith("|")]


def printed_commands() -> list[str]:
    """Return each command that a page prints for rows."""
    pages = [(ROOT / name).read_text() for name in PAGES]
    return sorted(set(chain.from_iterable(re.findall(f"`({COMMAND} [^`]+)`", page) for page in pages)))


def test_each_printed_command_selects_exactly_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    commands = printed_commands()
    assert commands
    for command in commands:
        *_, option, keys = words = shlex.split(command)
        assert option == "--only"
        assert main([*words[3:], "--list"]) == 0
        listed = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
        assert sorted(listed) == sorted(keys.split(","))


def test_each_printed_row_name_selects_the_row_with_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    tables = re.findall(
        r"<!-- bench:(?:topics|frames|channels|queues|records|bus) -->.*?<!-- /bench -->", page, re.DOTALL
    )
    printed = re.findall(r"^\| `(\w+)` \| (.+?) \|", "".join(tables), re.MULTILINE)
    assert len(printed) > 50
    assert main(["--only", ",".join(key for key, _ in printed), "--list"]) == 0
    listed = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert listed == dict(reversed(printed))  # a row's first line has its title, and its last may have costs


def test_printed_command_runs_as_program() -> None:
    command = f"{COMMAND} send_0"
    assert command in printed_commands()
    words = [sys.executable, *shlex.split(command)[1:], "--list"]
    listed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert listed.startswith("send_0: ")


def test_names_and_titles_of_rows_are_unique() -> None:
    assert len(set(list_words())) == len(list_words())
    for table in TABLES.values():
        titles = [case.title for case in table.cases]
        assert len(set(titles)) == len(titles)
        assert not [title for title in titles if title.startswith("the same")]
