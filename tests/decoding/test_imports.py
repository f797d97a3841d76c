"""Schemas of several files: imports are found, and the schema contains them."""

from __future__ import annotations

import shutil
import struct
import time
from pathlib import Path

import capnp
import pytest

import msgq
from msgq import Schema
from msgq.decoding.capnproto.source_files import CapnpSourceFiles
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.errors import InvalidValueError
from msgq.recording import LogReader, Schemas, Writer
from tests.command import run, start
from tests.recording.logs import write_log

ANNOTATIONS = Path(capnp.__file__).with_name("c++.capnp").read_text()
#: Schema in a folder "more" among the import paths; {} is replaced by the imports of the file.
CAR = """{}
$Cxx.namespace("cereal");
@0x8e2af1e708af8b8d;
struct CarState {{ vEgo @0 :Float32; gear @1 :Gear; enum Gear {{ park @0; drive @1 $Cxx.name("go"); }} }}
"""
LOG = """{}
$Cxx.namespace("cereal");
@0xf3b1f17e25a4285b;
annotation unit(field) :Text;
annotation note(struct, file) :Text;
const answer :Int32 = 42;
interface Service {{ get @0 (a :Int32) -> (event :Event); }}
struct Event $note("all") {{ time @0 :UInt64 $unit("ns"); car @1 :Car.CarState; service @2 :Service; }}
"""
OWN, SHARED, LIBRARY = (f'using Cxx = import "{path}";' for path in ("./c++.capnp", "/c++.capnp", "/capnp/c++.capnp"))
#: Imports of log.capnp, imports of car.capnp, and the folder that has car.capnp.
WAYS = {
    "own annotations": (f'{OWN} using Car = import "car.capnp";', OWN, "main"),
    "the library's annotations": (f'{LIBRARY} using Car = import "car.capnp";', LIBRARY, "main"),
    "both": (f'{LIBRARY} using Car = import "car.capnp";', OWN, "main"),
    "absolute": (f'{SHARED} using Car = import "/car.capnp";', SHARED, "more"),
    "relative and absolute": (f'{OWN} using Car = import "/car.capnp";', OWN, "more"),
    "the same file by two names": (
        f'{OWN} using Car = import "/car.capnp"; using Same = import "../more/car.capnp";',
        SHARED,
        "more",
    ),
    "up and down": (f'{OWN} using Car = import "../more/car.capnp";', OWN, "more"),
}


def write_schema(folder: Path, way: str) -> Path:
    """Write log.capnp, which imports car.capnp; return it. Each folder has annotations of its own."""
    of_log, of_car, place = WAYS[way]
    for name in ("main", "more"):
        (folder / name).mkdir(parents=True)
        (folder / name / "c++.capnp").write_text(ANNOTATIONS)
    (folder / place / "car.capnp").write_text(CAR.format(of_car))
    (folder / "main" / "log.capnp").write_text(LOG.format(of_log))
    return folder / "main" / "log.capnp"


def named(text: str, *paths: Path) -> Schema:
    found = Schemas.of_texts([text], import_paths=paths).of("any", None)
    assert found is not None
    return found


def message() -> bytes:
    """Return an event of 7 ns: one word of data and two pointers, of which the first one leads to a car."""
    return struct.pack("<IIIHHQIHHQfHH", 0, 5, 0, 1, 2, 7, 4, 1, 0, 0, 1.5, 1, 0)


EXPECTED = {"time": 7, "car": {"vEgo": 1.5, "gear": "drive"}}


@pytest.mark.parametrize("way", WAYS)
def test_capnp_imports_are_part_of_schema(tmp_path: Path, way: str) -> None:
    path = write_schema(tmp_path / "files", way)
    schema = named(f"capnproto:{path}:Event", tmp_path / "files" / "more")
    shutil.rmtree(tmp_path / "files")
    assert PayloadDecoder().decode_payload(schema, message()) | {"service": None} == EXPECTED | {"service": None}
    with Writer(tmp_path / "a.mcap") as writer:
        writer.write(writer.channel("events", schema), message(), 5)
    ((_, value),) = LogReader(tmp_path / "a.mcap").decoded()
    assert value["car"] == EXPECTED["car"]


def test_capnp_files_with_same_name_differ_by_import_path(tmp_path: Path) -> None:
    path = write_schema(tmp_path, "absolute")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c++.capnp").write_text(ANNOTATIONS)
    changed = (tmp_path / "more" / "car.capnp").read_text().replace("vEgo", "speed")
    (tmp_path / "other" / "car.capnp").write_text(changed)
    text = f"capnproto:{path}:Event"
    both = [tmp_path / "more", tmp_path / "other"]
    found = [
        PayloadDecoder().decode_payload(named(text, *paths), message())
        for paths in (both[:1], both[1:], both, both[::-1])
    ]
    assert [next(iter(value["car"])) for value in found] == ["vEgo", "speed", "vEgo", "speed"]


def test_capnp_imports_are_relative_to_link_name(tmp_path: Path) -> None:
    path = write_schema(tmp_path, "own annotations")
    (tmp_path / "elsewhere").mkdir()
    path.rename(tmp_path / "elsewhere" / "log.capnp")
    path.symlink_to(tmp_path / "elsewhere" / "log.capnp")
    assert PayloadDecoder().decode_payload(named(f"capnproto:{path}:Event"), message())["car"] == EXPECTED["car"]


def test_each_capnp_file_has_unique_name_after_renaming(tmp_path: Path) -> None:
    """A second "a.capnp" gets another name in the folder for the compiler, which must not be that of a third file."""
    files = ["a.capnp", *(f"{number}-a.capnp" for number in range(40)), "other/a.capnp"]
    (tmp_path / "other").mkdir()
    for number, file in enumerate(files):
        (tmp_path / file).write_text(f"@0xf3b1f17e25a42{number:03x};")
    (tmp_path / "main.capnp").write_text("".join(f'using F{n} = import "{file}";' for n, file in enumerate(files)))
    sources = CapnpSourceFiles(tmp_path / "main.capnp", [])
    assert len(set(sources.content_by_name.values())) == len(files) + 1


@pytest.mark.parametrize(
    "text",
    ['"' + '\\"' * 100_000, 'import "' + '\\"' * 100_000, 'import "' * 30_000],
    ids=["a string", "a name", "imports"],
)
def test_capnp_text_with_unterminated_string_is_refused_quickly(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.capnp").write_text(text)
    begin = time.process_time()
    with pytest.raises(InvalidValueError, match="' is invalid: "):
        Schemas.of_texts([f"capnproto:{tmp_path}/a.capnp:A"])
    assert time.process_time() - begin < 5


def test_missing_capnp_import_error_names_option(tmp_path: Path) -> None:
    path = write_schema(tmp_path, "absolute")
    with pytest.raises(InvalidValueError, match=r"/car\.capnp.*-I"):
        named(f"capnproto:{path}:Event")
    with pytest.raises(InvalidValueError, match=r"nosuch.*is not a folder"):
        named(f"capnproto:{path}:Event", tmp_path / "nosuch")


# ROS


def write_tree(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


MSG = {
    "pkg/msg/Scan.msg": "std_msgs/Header header\nPoint[2] points\nother_pkg/Flag flag\nbuiltin_interfaces/Time at\n",
    "pkg/msg/Point.msg": "int32 x  # a comment\nint32 LIMIT=5\n",
    "more/std_msgs/msg/Header.msg": "builtin_interfaces/Time stamp\nstring frame_id\n",
    "more/other_pkg/msg/Flag.msg": "bool on\nNested[] nested\n",
    "more/other_pkg/msg/Nested.msg": "Flag2 flag\n",
    "more/other_pkg/msg/Flag2.msg": "uint8 x\n",
}
IDL = {
    "pkg/msg/Scan.idl": '#include "std_msgs/msg/Header.idl"\n#include "pkg/msg/Point.idl"\n'
    "module pkg { module msg { struct Scan { std_msgs::msg::Header header; pkg::msg::Point points[2]; }; }; };\n",
    "pkg/msg/Point.idl": "module pkg { module msg { struct Point { long x; }; }; };\n",
    "more/std_msgs/msg/Header.idl": '#include "builtin_interfaces/msg/Time.idl"\n'
    "module std_msgs { module msg { struct Header { builtin_interfaces::msg::Time stamp; string frame_id; }; }; };\n",
    "more/builtin_interfaces/msg/Time.idl": '#include "std_msgs/msg/Header.idl"\n'
    "module builtin_interfaces { module msg { struct Time { long sec; unsigned long nanosec; }; }; };\n",
}
SCAN = b"\0\1\0\0" + struct.pack("<iII2s2xii", 1, 2, 2, b"f\0", 3, 4)


def test_ros_definitions_are_found_in_folder_and_import_paths(tmp_path: Path) -> None:
    write_tree(tmp_path / "files", MSG)
    text = f"cdr:{tmp_path}/files/pkg/msg/Scan.msg:pkg/msg/Scan"
    schema = named(text, tmp_path / "files" / "more")
    shutil.rmtree(tmp_path / "files")
    rest = struct.pack("<B3xIBxxxiI", 1, 1, 9, 5, 6)
    value = PayloadDecoder().decode_payload(schema, SCAN + rest)
    assert value["header"] == {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "f"}
    assert value["points"] == [{"x": 3}, {"x": 4}]
    assert value["flag"] == {"on": True, "nested": [{"flag": {"x": 9}}]}


def test_ros1_definitions_are_found_without_msg_folder(tmp_path: Path) -> None:
    write_tree(tmp_path, {"pkg/Scan.msg": "Header header\n", "more/std_msgs/Header.msg": "uint32 seq\n"})
    schema = named(f"ros1:{tmp_path}/pkg/Scan.msg:pkg/Scan", tmp_path / "more")
    assert PayloadDecoder().decode_payload(schema, b"\5\0\0\0") == {"header": {"seq": 5}}


def test_ros_definitions_in_file_take_precedence_over_other_files(tmp_path: Path) -> None:
    behind = "=" * 80 + "\nMSG: std_msgs/Header\nuint8 own\n"
    write_tree(tmp_path, MSG | {"pkg/msg/Scan.msg": f"std_msgs/Header header\n{behind}"})
    schema = named(f"cdr:{tmp_path}/pkg/msg/Scan.msg:pkg/msg/Scan", tmp_path / "more")
    assert schema.data.decode() == (tmp_path / "pkg/msg/Scan.msg").read_text()


def test_idl_include_is_read_once(tmp_path: Path) -> None:
    write_tree(tmp_path / "files", IDL)
    schema = named(f"cdr:{tmp_path}/files/pkg/msg/Scan.idl:pkg/msg/Scan", tmp_path / "files" / "more")
    shutil.rmtree(tmp_path / "files")
    assert schema.data.count(b"struct Header") == 1
    value = PayloadDecoder().decode_payload(schema, SCAN)
    assert value["header"] == {"stamp": {"sec": 1, "nanosec": 2}, "frame_id": "f"}
    assert value["points"] == [{"x": 3}, {"x": 4}]


# Protocol Buffers


def test_protobuf_schema_without_imports_error_names_protoc_option(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", dependency=["b.proto"])
    file.message_type.add(name="A")
    schema = Schema("p.A", "protobuf", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    value = PayloadDecoder().decode_payload(schema, b"")
    assert isinstance(value, Undecoded)
    assert "b.proto" in value.reason
    assert "--include_imports" in value.reason


def test_protobuf_text_error_names_compile_command(tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A {}')
    with pytest.raises(InvalidValueError, match="--include_imports"):
        named(f"protobuf:{tmp_path}/a.proto:A")


# Commands


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    path = write_schema(tmp_path / "files", "absolute")
    return ["--schema", f"capnproto:{path}:Event", "-I", str(tmp_path / "files" / "more")]


def test_bag_commands_accept_import_paths(tmp_path: Path, arguments: list[str]) -> None:
    log = write_log(tmp_path / "a.mcap", ("car", 1, message()))
    assert '"vEgo": 1.5' in run("bag", "cat", log, *arguments, "-I", tmp_path).output
    assert '"vEgo"' in run("bag", "cat", log, "-I", arguments[3], *arguments[:2]).output, "in any order"
    run("bag", "convert", log, "-o", tmp_path / "a.jsonl", *arguments, "--import-path", tmp_path)
    assert '"vEgo"' in (tmp_path / "a.jsonl").read_text()
    other = write_log(tmp_path / "b.mcap", ("car", 1, message().replace(struct.pack("<f", 1.5), bytes(4))))
    assert "vEgo" in run("bag", "diff", log, other, *arguments, "-I", tmp_path, code=1).output
    assert "-I" in run("bag", "cat", log, *arguments[:2], code=2).output


def test_echo_accepts_import_paths(prefix: str, arguments: list[str], tmp_path: Path) -> None:
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, "car")
        with start("echo", "car", "-n", "1", "--json", *arguments, "-I", str(tmp_path)) as process:
            process.wait_opened("msgq_")
            pub.send(message())
            ((said,), _) = process.end()
    assert said["value"]["car"] == EXPECTED["car"]
