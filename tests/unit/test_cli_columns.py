"""Tables that fit: columns by the width of the terminal, and the keys of `msgq top` in a real terminal."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

import msgq
from msgq.cli.common.columns import (
    LOST_RANK,
    NAME_RANK,
    RATE_RANK,
    StreamingTable,
    TableColumn,
    choose_columns,
    raise_sort_rank,
)
from msgq.cli.common.endpoint_display import EndpointDisplay
from msgq.cli.common.keyboard import END
from msgq.cli.common.shortening import shorten_texts
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints
from msgq.recording import Writer
from tests.command import run
from tests.terminal import Terminal

Row = dict[str, str]
COLUMNS = [
    TableColumn[Row]("endpoint", lambda row: row["name"], NAME_RANK, text_width=10),
    TableColumn[Row]("kind", lambda row: "topic", text_width=5),
    TableColumn[Row]("publisher", lambda row: [row["name"], "python 12"], text_width=8),
    TableColumn[Row]("messages/s", lambda row: row["rate"], RATE_RANK),
    TableColumn[Row]("lost", lambda row: row["lost"], LOST_RANK),
    TableColumn[Row]("age", lambda row: "12 s"),
]
ROWS = [
    {"name": "camera/front/left/image", "rate": "20", "lost": "0"},
    {"name": "imu", "rate": "1,000", "lost": "1,234,567"},
]


def format_rows(width: int | None, rows: list[Row] = ROWS) -> list[str]:
    layout = choose_columns(COLUMNS, rows, width)
    return [layout.title_line, *map(layout.format_row, rows), layout.hidden_line]


def test_pipe_receives_all_columns_and_whole_texts() -> None:
    assert format_rows(None) == [
        "endpoint                 kind   publisher                           messages/s       lost   age",
        "camera/front/left/image  topic  camera/front/left/image, python 12          20          0  12 s",
        "imu                      topic  imu, python 12                           1,000  1,234,567  12 s",
        "",
    ]


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (10, ["endpoint"]),
        (21, ["endpoint", "lost"]),
        (28, ["endpoint", "kind", "lost"]),
        (33, ["endpoint", "messages/s", "lost"]),
        (40, ["endpoint", "kind", "messages/s", "lost"]),
        (50, ["endpoint", "kind", "publisher", "messages/s", "lost"]),
        (56, ["endpoint", "kind", "publisher", "messages/s", "lost", "age"]),
    ],
)
def test_narrow_table_keeps_name_then_lost_then_rate(width: int, titles: list[str]) -> None:
    layout = choose_columns(COLUMNS, ROWS, width)
    assert [column.title for column in layout.columns] == titles
    assert [*layout.hidden_titles] == [column.title for column in COLUMNS if column.title not in titles]


def test_sort_column_stays_next_to_name() -> None:
    layout = choose_columns(raise_sort_rank(COLUMNS, "age"), ROWS, 18)
    assert [column.title for column in layout.columns] == ["endpoint", "age"]
    layout = choose_columns(raise_sort_rank(COLUMNS, "endpoint"), ROWS, 10)
    assert [column.title for column in layout.columns] == ["endpoint"]


def test_shortened_name_keeps_both_ends_and_remaining_width_goes_to_name() -> None:
    assert format_rows(33)[1:3] == ["came…image          20          0", "imu              1,000  1,234,567"]
    assert format_rows(37)[1] == "camera…t/image          20          0"
    assert format_rows(56)[1].startswith("came…image  topic  ca…ge +1")


def test_hidden_columns_are_named_in_one_line() -> None:
    assert format_rows(50)[3] == "1 column does not fit: age"
    assert format_rows(40)[3] == "2 columns do not fit: publisher, age"
    assert format_rows(33)[3] == "3 columns do not fit: kind, publ…"
    assert format_rows(80)[3] == ""


TEXT = st.text(st.characters(codec="utf-8", categories=["L", "N", "So", "Cc", "Mn"]), max_size=30)


@example("\x1b[2J日本語日本語日本語日本語", "日本", 11)
@given(TEXT, TEXT, st.integers(10, 120))
def test_no_line_is_wider_than_terminal(name: str, other: str, width: int) -> None:
    rows = [{"name": name, "rate": "1", "lost": "2"}, {"name": other, "rate": "-", "lost": "-"}]
    lines = format_rows(width, rows)
    assert max(map(cell_len, lines)) <= width
    assert all(line.isprintable() for line in lines if line.isascii())


def test_streaming_table_chooses_columns_again_after_resize(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = iter([None, 33, 33])
    monkeypatch.setattr("msgq.cli.common.columns.get_table_width", lambda: next(widths))
    table = StreamingTable(COLUMNS)
    for rows in (ROWS, ROWS[1:], ROWS):
        table.print_rows(rows)
    shown = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["endpoint", "camera/front/left/image", "imu", "endpoint", "3", "imu", "cam…mage", "imu"]


def test_streaming_table_repeats_titles_every_20_lines(capsys: pytest.CaptureFixture[str]) -> None:
    table = StreamingTable(COLUMNS)
    for _ in range(41):
        table.print_rows(ROWS[1:])
    lines = capsys.readouterr().out.splitlines()
    assert [number for number, line in enumerate(lines) if line.startswith("endpoint")] == [0, 21, 42]


# ---- all verbs with tables ----

LONG_NAME = "vehicle/front_left/camera/image_rectified_color/compressed"


@pytest.fixture
def traffic(prefix: str, tmp_path: object) -> Iterator[None]:
    """Endpoints of all kinds, some with long names, and a stage."""
    with ExitStack() as stack:
        enter = stack.enter_context
        name = LONG_NAME.replace("/", ".")
        for topic in (name, "imu", "timing:planner:imu"):
            enter(msgq.pub_sock(topic, tracked=True)).send(b"x")
        enter(msgq.sub_sock("imu"))
        enter(enter(msgq.Channel(name)).publisher()).send(b"x")
        enter(msgq.MessageQueue(name)).send(b"x")
        enter(msgq.Seqlock("speed", "<f8")).value = 2.5
        yield


WIDE_VERBS = {
    "list": "list --duration 0.01",
    "top": "top --once --interval 0.01",
    "stat": "stat --once --interval 0.01",
    "hz": "hz * --once --interval 0.05",
    "bw": "bw * --once --interval 0.05",
    "delay": "delay imu --once --interval 0.05",
    "stages": "stages --window 0.1",
    "stages --tree": "stages --tree --window 0.1",
}


def show(monkeypatch: pytest.MonkeyPatch, words: str, columns: int | None) -> list[str]:
    """Return the lines of a verb on a terminal of some width, or in a pipe."""
    if columns is not None:
        for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(columns), "LINES": "24"}.items():
            monkeypatch.setenv(name, value)
    return re.sub(r"\x1b\[[0-9;]*m", "", run(*words.split()).stdout).splitlines()


@pytest.mark.usefixtures("traffic")
@pytest.mark.parametrize("verb", WIDE_VERBS)
def test_verb_fits_on_terminals_and_shows_all_columns_in_pipe(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    whole = show(monkeypatch, WIDE_VERBS[verb], None)
    titles = next(line for line in whole if re.search(r"  lost|lost/s", line))
    every = re.split(" {2,}", titles.strip())
    assert not [line for line in whole if "not fit: " in line or "…" in line]
    for columns in (200, 120, 80):
        shown = show(monkeypatch, WIDE_VERBS[verb], columns)
        head = next(line for line in shown if re.search(r"  lost|lost/s", line))
        kept = re.split(" {2,}", head.strip())
        table = shown[shown.index(head) :]
        assert max(map(cell_len, table)) <= columns
        hidden = [line for line in shown if "not fit: " in line]
        named = hidden[0].partition(": ")[2].split(", ") if hidden else []
        assert len(hidden) == (kept != every)
        if named and named[-1].endswith("…"):  # the line is full, so it counts the columns and names the first ones
            assert hidden[0].startswith(f"{len(every) - len(kept)} columns do not fit: ")
            named = [title for title in every if title not in kept]
        assert sorted(kept + named) == sorted(every)
        assert {"lost", "lost/s"} & {*kept}
        assert "messages/s" in kept or verb == "stages --tree"
        assert columns < 200 or not hidden


@pytest.mark.usefixtures("traffic")
def test_list_at_80_columns_keeps_both_ends_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = show(monkeypatch, "list --duration 0.01", 80)
    assert shown[0].split() == ["endpoint", "kind", "publisher", "subscribers", "messages/s", "lost"]
    names = [line.split()[0] for line in shown[1:-2]]
    assert names[0::3] == ["imu", "records/speed"]
    for name, begin in zip((names[1], names[2], names[4]), ("vehicle.", "channel/", "queue/"), strict=True):
        assert re.fullmatch(rf"{begin}.*….*\.compressed", name)  # the name has the width that the pids leave
    assert shown[-2] == "5 columns do not fit: messages, bytes/s, memory, age, note"
    assert str(os.getpid()) in shown[1]


def test_bag_info_fits_on_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]) -> None:
    path = f"{os.fspath(tmp_path)}/log.mcap"
    with Writer(path) as writer:
        writer.write(writer.channel(LONG_NAME, schema=msgq.Schema("a.package.with.a.long.Name", "json")), b"1", 1)
    shown = show(monkeypatch, f"bag info {path}", 80)
    head = next(line for line in shown if line.startswith("endpoint"))
    assert max(map(cell_len, shown[shown.index(head) :])) <= 80
    assert LONG_NAME in "\n".join(show(monkeypatch, f"bag info {path}", 200))
    assert max(map(cell_len, show(monkeypatch, f"bag list channels {path}", 80))) <= 80


# ---- keys of top, in a real terminal ----


@pytest.fixture
def forty(prefix: str) -> Iterator[None]:
    """Topics t00 to t39."""
    with ExitStack() as stack:
        for number in range(40):
            stack.enter_context(msgq.pub_sock(f"t{number:02}", 4096))
        yield


def names(lines: list[str]) -> list[str]:
    return [line.split()[0] for line in lines if re.match(r"t\d\d ", line)]


def top(columns: int = 80, lines: int = 24) -> Terminal:
    return Terminal(columns, lines, "top", "--sort", "name", "--interval", "0.05")


@pytest.mark.usefixtures("forty")
def test_top_scrolls_with_arrow_and_page_keys() -> None:
    def first(number: int) -> list[str]:
        return terminal.wait_screen(lambda lines: names(lines)[:1] == [f"t{number:02}"])

    with top() as terminal:
        shown = first(0)
        assert names(shown) == [f"t{number:02}" for number in range(20)]
        assert "40 endpoints" in shown[0]
        assert "1 to 20, scroll with the arrow keys" in shown[0]
        for keys, number in (("\x1b[B", 1), ("\x1b[B\x1b[B", 3), ("\x1b[A", 2), ("\x1b[6~", 20), ("\x1b[5~", 0)):
            terminal.press(keys)
            first(number)
        terminal.press("\x1b[F")
        assert names(first(20)) == [f"t{number:02}" for number in range(20, 40)]
        terminal.press("\x1b[B")
        terminal.press("\x1b[H")
        first(0)
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.usefixtures("forty")
def test_top_filters_names_after_slash_until_escape() -> None:
    thirties = [f"t{number}" for number in range(30, 40)]
    with top() as terminal:
        terminal.wait_screen(lambda lines: names(lines)[:1] == ["t00"])
        terminal.press("/T3qn\x7f\x7f")  # q and n are letters of the filter
        shown = terminal.wait_screen(lambda lines: names(lines) == thirties)
        assert shown[0].startswith("/T3_: 10 endpoints of 40, ")
        terminal.press("\n")
        shown = terminal.wait_screen(lambda lines: lines and lines[0].startswith("/T3: "))
        assert names(shown) == thirties
        terminal.press("/9")
        assert terminal.wait_screen(lambda lines: names(lines) == ["t39"])
        terminal.press("xyz")
        assert terminal.wait_screen(lambda lines: lines and lines[0].startswith("/T39xyz_: 0 endpoints of 40, "))
        terminal.press("\x1b")
        assert terminal.wait_screen(lambda lines: len(names(lines)) == 20)[0].startswith("40 endpoints, ")
        terminal.press("q")
        assert terminal.wait() == 0


def test_names_that_differ_in_the_middle_stay_different() -> None:
    places = ("front_left", "front_right", "rear_left", "rear_right")
    names = [f"vehicle.{place}.camera.{kind}_image" for place in places for kind in ("raw", "compressed")]
    layout = choose_columns(COLUMNS[:1], [{"name": name, "rate": "", "lost": ""} for name in names], 24)
    shown = [layout.format_row({"name": name, "rate": "", "lost": ""}) for name in names]
    assert len(set(shown)) == len(names)
    assert max(map(cell_len, shown)) <= 24
    assert "righ" in shown[2]


@given(st.lists(st.text("ab.é漢", max_size=30), max_size=8, unique=True), st.integers(1, 30))
@example(["vehicle.a.image", "vehicle.b.image"], 8)
def test_shortened_texts_fit(texts: list[str], width: int) -> None:
    shortened = shorten_texts(texts, width)
    assert set(shortened) == set(texts)
    assert max(map(cell_len, shortened.values()), default=0) <= width


@pytest.mark.parametrize("middle", ["left", "right", "x" * 40])
def test_difference_of_texts_stays_visible(middle: str) -> None:
    texts = [f"vehicle.front.{name}.image.raw" for name in (middle, f"{middle}2", f"3{middle}")]
    assert len(set(shorten_texts(texts, 16).values())) == 3


@pytest.mark.usefixtures("forty")
def test_sort_key_of_display_scrolls_to_the_first_row(prefix: str) -> None:
    display = EndpointDisplay("name")
    display.set_rows(LiveEndpoints(EndpointSelection([], prefix)).poll())
    display.handle_key(END, 10)
    assert names(display.format_screen(80, 10))[-1] == "t39"
    display.handle_key("l", 10)
    assert names(display.format_screen(80, 10))[0] == "t00"


@pytest.mark.parametrize("columns", [10, 40, 60, 80, 120])
@pytest.mark.usefixtures("forty")
def test_first_line_of_display_fits(prefix: str, columns: int) -> None:
    display = EndpointDisplay("rate")
    display.set_rows(LiveEndpoints(EndpointSelection([], prefix)).poll())
    head = display.format_screen(columns, 10)[0]
    assert len(head) <= columns
    assert ("1 to 6" in head) == (columns >= 60)
    assert ("scroll with the arrow keys" in head) == (columns >= 80)
    assert head.startswith("40 ")


def test_filter_of_display_ignores_case(prefix: str) -> None:
    with msgq.pub_sock("Camera.Left"), msgq.pub_sock("imu"):
        display = EndpointDisplay("name")
        display.set_rows(LiveEndpoints(EndpointSelection([], prefix)).poll())
        for key in "/caMERA.l":
            assert display.handle_key(key, 24)
        assert [row.endpoint for row in display.rows] == ["Camera.Left"]
        assert not display.handle_key("\x1b[A", 24)  # an arrow key is no text
        display.handle_key("\n", 24)
        assert not display.handle_key("z", 24)


@pytest.mark.usefixtures("forty")
def test_top_sorts_by_key_and_keeps_sort_column_on_narrow_terminal() -> None:
    with top(columns=40) as terminal:
        shown = terminal.wait_screen(lambda lines: names(lines)[:1] == ["t00"])
        assert shown[1].split() == ["endpoint", "kind", "messages/s", "lost"]
        assert "memory" not in shown[1]
        terminal.press("m")
        shown = terminal.wait_screen(lambda lines: lines[1:] and "memory" in lines[1].split())
        assert max(map(len, shown)) <= 40
        assert any("columns do not fit: " in line for line in shown)
        terminal.resize(200, 10)
        shown = terminal.wait_screen(lambda lines: len(names(lines)) == 6)
        assert "publisher" in shown[1].split()
        assert not [line for line in shown if "not fit: " in line]
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize(("columns", "lines"), [(20, 3), (80, 24), (200, 50)])
@pytest.mark.usefixtures("forty")
def test_top_never_exceeds_terminal(columns: int, lines: int) -> None:
    with top(columns, lines) as terminal:
        shown = terminal.wait_screen(lambda lines: names(lines)[:1] == ["t00"])
        assert len(shown) <= max(4, lines)
        terminal.press("q")
        assert terminal.wait() == 0


@pytest.mark.parametrize("words", ["hz imu", "bw imu", "delay imu", "stat", "list"])
def test_no_line_wraps_on_real_terminal_of_80_columns(prefix: str, words: str) -> None:
    ending = [] if words == "list" else ["--once", "--interval", "0.05"]
    with msgq.pub_sock("imu", tracked=True), Terminal(80, 24, *words.split(), *ending) as terminal:
        lines = terminal.read_all()
        assert any("lost" in line for line in lines)
        assert max(map(len, lines)) <= 80
