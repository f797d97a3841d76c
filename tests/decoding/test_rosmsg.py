"""Definitions of ROS 1 and ROS 2 as their texts have them."""

from __future__ import annotations

import pytest

from msgq.decoding.cdr_types import EMPTY_STRUCT_MEMBER, CdrArray, CdrSequence, CdrStruct, is_byte_array
from msgq.decoding.rosmsg import parse_ros1_struct, parse_ros2_struct
from msgq.decoding.scalar_types import ScalarType, TextType

LINE = "=" * 80


def fields(text: str) -> dict[str, object]:
    return dict(parse_ros2_struct("pkg/msg/Name", text).fields)


def test_ros_parser_reads_all_line_kinds() -> None:
    found = fields(
        "# a comment, and no field: int32 x\r\n"
        "int32 FULL=5 # a constant\n"
        'string NAME = "# = [" \n'
        "bool truth true\n"
        "byte one\n"
        "char two\n"
        "  uint8[]   data # of a picture\n"
        "int8[4] four\n"
        "float32 half 0.5\n"
        'string<=10[<=3] texts ["a", "b"]\n'
        "wstring wide\n"
        "@key\n"
        "@key float64[<=5] some\n"
        "uint16 last#comment\n"
    )
    assert list(found) == ["truth", "one", "two", "data", "four", "half", "texts", "wide", "some", "last"]
    assert found["truth"] == ScalarType("b1")
    assert found["one"] == found["two"] == ScalarType("u1")
    assert is_byte_array(found["data"])  # type: ignore[arg-type]  # it is a type
    assert isinstance(found["four"], CdrArray)
    assert (found["four"].element_type, found["four"].element_count) == (ScalarType("i1"), 4)
    assert found["half"] == ScalarType("f4")
    assert isinstance(found["texts"], CdrSequence)
    assert found["texts"].element_type == TextType()
    assert found["wide"] == TextType(is_wide=True)
    assert isinstance(found["some"], CdrSequence)
    assert found["last"] == ScalarType("u2")


def test_ros_parser_finds_embedded_definitions_by_type_name() -> None:
    text = (
        f"Header header\nPoint near\nother/Point far\nother/msg/Point[] points\nbuiltin_interfaces/Time when\n"
        f"{LINE}\nMSG: std_msgs/Header\nstring frame_id\n"
        f"{LINE}\nMSG: pkg/msg/Point\nint32 x\n"
        f"{LINE}\nMSG: other/Point\nPart y\n"
        f"{LINE}\nMSG: other/Part\nfloat64 z"
    )
    found = fields(text)
    names = {name: kind.name for name, kind in found.items() if isinstance(kind, CdrStruct)}
    assert names == {
        "header": "std_msgs/Header",
        "near": "pkg/Point",
        "far": "other/Point",
        "when": "builtin_interfaces/Time",
    }
    assert isinstance(found["far"], CdrStruct)
    assert isinstance(found["far"].fields[0][1], CdrStruct), "a name without a package is of the package that says it"


def test_ros2_message_without_fields_has_one_dummy_member() -> None:
    assert parse_ros2_struct("std_msgs/msg/Empty", "").fields == ((EMPTY_STRUCT_MEMBER, ScalarType("u1")),), "as in CDR"
    assert parse_ros1_struct("std_msgs/Empty", "# nothing\n").fields == ()


def test_ros1_types_are_parsed() -> None:
    found = dict(
        parse_ros1_struct("pkg/Name", "byte b\nchar c\ntime stamp\nduration[2] spans\nstring NOTE=# no comment").fields
    )
    assert list(found) == ["b", "c", "stamp", "spans"]
    assert (found["b"], found["c"]) == (ScalarType("i1"), ScalarType("u1"))
    assert isinstance(found["stamp"], CdrStruct)
    assert found["stamp"].fields == (("secs", ScalarType("u4")), ("nsecs", ScalarType("u4")))
    assert isinstance(found["spans"], CdrArray)
    with pytest.raises(ValueError, match="needs 'wstring'"):
        parse_ros1_struct("pkg/Name", "wstring x")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int32", "line 1 of 'pkg/Name' is not a field: 'int32'"),
        ("int32 x y=", ""),
        ("int32 a-b", "is not a field"),
        ("int32[ x", "is not a field"),
        ("---\nint32 x", "is not a field"),
        ("int32 x\nint64 x", "two fields with the same name"),
        ("Thing x", "needs 'Thing', which is not defined"),
        ("Name x", "'pkg/Name' contains itself"),
        ("Name[] x", "'pkg/Name' contains itself"),
        ("uint8[99999999999] x", "an array has 99999999999 elements"),
        ("uint8[0] x", "an array has 0 elements"),
        (f"int32 x\n{LINE}\nint32 y", "expected 'MSG:' and a name after a separator, got 'int32 y'"),
    ],
)
def test_invalid_ros_text_raises_error(text: str, why: str) -> None:
    if not why:
        assert list(fields(text)) == ["x"], "what stands behind a name is its default"
        return
    with pytest.raises(ValueError, match=why.replace("[", r"\[")):
        fields(text)


def test_ros_definition_depth_is_bounded() -> None:
    deep = (
        "B0 x\n" + "".join(f"{LINE}\nMSG: pkg/B{i}\nB{i + 1} x\n" for i in range(60)) + f"{LINE}\nMSG: pkg/B60\nbool x"
    )
    with pytest.raises(ValueError, match="deeper than 50 levels"):
        fields(deep)
    several = "\n".join("B{0} x%d" % i for i in range(10))  # noqa: UP031  # it has braces
    is_wide = several.format(0) + "".join(f"\n{LINE}\nMSG: pkg/B{i}\n{several.format(i + 1)}" for i in range(12))
    with pytest.raises(ValueError, match="more than 65536 fields"):
        fields(f"{is_wide}\n{LINE}\nMSG: pkg/B12\nbool x")
    nothing = f"{LINE}\nMSG: pkg/None_\n# nothing"
    with pytest.raises(ValueError, match="elements without bytes"):
        parse_ros1_struct("pkg/Name", f"None_[] x\n{nothing}")


@pytest.mark.ci
def test_ros_types_of_all_distributions_agree_with_rosbags() -> None:
    from rosbags.interfaces import Nodetype
    from rosbags.typesys import Stores, get_typestore

    def compare(store: object, name: str, found: CdrStruct) -> None:
        said = store.fielddefs[name][1]  # type: ignore[attr-defined]  # it is rosbags'
        if said[0][0] == EMPTY_STRUCT_MEMBER and not found.fields:
            return
        assert [field for field, _ in said] == [field for field, _ in found.fields], name
        for (_, (node, what)), (_, kind) in zip(said, found.fields, strict=True):
            if node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
                assert isinstance(kind, CdrArray if node == Nodetype.ARRAY else CdrSequence), name
                assert not isinstance(kind, CdrArray) or kind.element_count == what[1], name
                (node, what), kind = what[0], kind.element_type
            if node == Nodetype.NAME:
                assert isinstance(kind, CdrStruct), name
                if kind.name not in ("time", "duration"):
                    compare(store, what, kind)
            else:
                assert (kind == TextType()) == (what[0] == "string"), name
                assert isinstance(kind, (TextType, ScalarType)), name

    compared = 0
    for which in Stores:
        store, first = get_typestore(which), "ROS1" in which.name
        for name in store.fielddefs:
            text = store.generate_msgdef(name, ros_version=1 if first else 2)[0]
            compare(store, name, (parse_ros1_struct if first else parse_ros2_struct)(name, text))
            compared += 1
    assert compared > 1000
