"""Definitions in IDL."""

from __future__ import annotations

import time

import pytest

from msgq.decoding.cdr_types import CdrArray, CdrSequence, CdrStruct, CdrType, UnsupportedType
from msgq.decoding.idl import parse_idl_struct
from msgq.decoding.scalar_types import ScalarType, TextType
from tests.cases import each_case

ROS = """\
================================================================================
IDL: pkg/msg/Whole
// generated from rosidl_adapter/resource/msg.idl.em
#include "pkg/msg/Part.idl"

module pkg {
  module msg {
    typedef double double__9[9];
    typedef pkg::msg::Part pkg__msg__Part;
    typedef pkg__msg__Part pkg__msg__Part__2[2];
    module Whole_Constants {
      @verbatim (language="comment", text="a \\"quoted\\" };")
      const string NAME = "a;b}";
      const unsigned long SIDES = 2 * (3 + 1) << 1;
      const double HALF = -0.5e0;
    };
    @verbatim (language="comment", text=
      "first" "second")
    struct Whole {
      @default (value=5)
      long count, grid[2][Whole_Constants::SIDES];
      double__9 covariance;
      pkg__msg__Part__2 parts;
      sequence<sequence<octet, 4>, Whole_Constants::SIDES> data;
      string<5> text;
      wstring wide;
      unsigned long long most;
      Color color;
      @unit (value="m") float _module;
    };
    enum Color { RED, @value(5) GREEN, BLUE };
  };
};

================================================================================
IDL: pkg/msg/Part
module pkg { module msg { /* of two
lines */ struct Part { boolean truth; }; }; };
"""


def fields(text: str, name: str = "A") -> dict[str, CdrType]:
    return dict(parse_idl_struct(name, text).fields)


def test_idl_parser_reads_ros_files() -> None:
    found = fields(ROS, "pkg/msg/Whole")
    assert list(found) == ["count", "grid", "covariance", "parts", "data", "text", "wide", "most", "color", "module"]
    grid, parts, data, color = found["grid"], found["parts"], found["data"], found["color"]
    assert isinstance(grid, CdrArray)
    assert isinstance(grid.element_type, CdrArray)
    assert (grid.element_count, grid.element_type.element_count, grid.element_type.element_type) == (
        2,
        16,
        ScalarType("i4"),
    )
    assert isinstance(parts, CdrArray)
    assert isinstance(parts.element_type, CdrStruct)
    assert parts.element_type.fields == (("truth", ScalarType("b1")),)
    assert isinstance(data, CdrSequence)
    assert isinstance(data.element_type, CdrSequence)
    assert (found["text"], found["wide"]) == (TextType(), TextType(is_wide=True))
    assert isinstance(color, ScalarType)
    assert color.enum_names == {0: "RED", 5: "GREEN", 6: "BLUE"}


def test_idl_names_resolve_to_innermost_module() -> None:
    text = """
    struct T { octet outer; };
    module m { struct T { octet inner; }; module n { struct A { T near; ::T far; m::T same; }; }; };
    """
    found = fields(text, "m::n::A")
    assert [one.fields[0][0] for one in found.values() if isinstance(one, CdrStruct)] == ["inner", "outer", "inner"]


def test_idl_annotations_set_xcdr2_extensibility() -> None:
    text = "@{} struct A {{ octet x; }};"
    assert parse_idl_struct("A", text.format("final")).is_appendable is False
    assert parse_idl_struct("A", text.format("appendable")).is_appendable is True
    assert parse_idl_struct("A", text.format("extensibility(APPENDABLE)")).is_appendable is True
    assert parse_idl_struct("A", text.format("nested")).is_appendable is None
    with pytest.raises(ValueError, match="'A' is not a struct"):
        parse_idl_struct("A", text.format("mutable"))


def test_idl_struct_has_fields_of_base() -> None:
    assert list(fields("struct A : B { octet y; }; struct B { octet x; };")) == ["x", "y"]


@pytest.mark.parametrize(
    ("member", "what"),
    [
        ("@optional long x;", "an optional member"),
        ("U x;", "a union"),
        ("sequence<U> x[3];", "a union"),
        ("map<string, long> x;", "map"),
        ("long double x;", "long double"),
        ("fixed<5, 2> x;", "fixed"),
        ("wchar x;", "wchar"),
        ("Few x;", "an enum of few bits"),
        ("M x;", "a mutable struct"),
    ],
)
def test_unsupported_idl_type_affects_only_its_messages(member: str, what: str) -> None:
    more = "union U switch(long) { case 1: long a; default: string b; }; @bit_bound(8) enum Few { ONE };"
    found = fields(f"{more} @mutable struct M {{ long x; }}; struct A {{ {member} octet y; }};")
    assert found == {"x": UnsupportedType(what), "y": ScalarType("u1")}


@each_case(
    "text, why",
    [
        ("struct B { octet x; };", "struct 'A' is not defined"),
        ("const long A = 5;", "'A' is not a struct"),
        ("struct A { B b; }; struct B { A a; };", "'A' contains itself"),
        ("struct A { Missing x; };", "'A' needs 'Missing', which is not defined"),
        ("const long N = M; const long M = N; struct A { octet x[N]; };", "'N' contains itself"),
        ("struct A { octet x[1 << 100000000000]; };", "expression '1 << 100000000000' has no valid result"),
        ("struct A { octet x[1 / 0]; };", "expression '1 / 0' has no valid result"),
        ("struct A { octet x[9999999999 * 9999999999]; };", "a number has more than 64 bits"),
        ("struct A { octet x[-1]; };", "an array has -1 elements"),
        ('struct A { octet x["a"]; };', "is not an integer"),
        ("struct A { octet x[0.5]; };", "length 0.5 is not an integer"),
        ("struct A { octet x; octet x; };", "'A' has two fields with the same name"),
        ("struct A { N x; }; const long N = 1;", "'N' is a constant; expected a type"),
        ("struct A { octet x", "the text ends within a definition"),
        ("struct A { octet x; ", "the text ends within a definition"),
        ("struct A { octet ; };", "';' is not a valid name"),
        ("struct A { octet x }; ", "expected ';' before '}'"),
        ("interface A { };", "expected a definition, got 'interface'"),
        ('struct A { octet x; }; "', "invalid IDL at"),
        ("\\", "invalid IDL at"),
    ],
)
def test_invalid_idl_text_raises_error(text: str, why: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011  # its text is looked at below
        parse_idl_struct("A", text)
    assert why in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        f"const long X = {'(' * 4000}1{')' * 4000}; struct A {{ octet b[X]; }};",
        f"const long X = {'-' * 4000}1; struct A {{ octet b[X]; }};",
        f"struct A {{ {'sequence<' * 4000}long{'>' * 4000} b; }};",
        f"struct A {{ octet x{'[2]' * 4000}; }};",
        "".join(f"struct A{i or ''} {{ A{i + 1} b; }};" for i in range(4000)) + "struct A4000 { long x; };",
        "".join(f"struct A{i or ''} {{ A{i + 1} a, b, c, d; }};" for i in range(40)) + "struct A40 { long x; };",
        "module a {" * 20_000,
        "".join(f"const long X{i} = X{i + 1};" for i in range(4000)) + "struct A { octet x[X0]; };",
        "struct A {" + "".join(f"octet x{i};" for i in range(70_000)) + "};",
        "@" * 20_000,
        "/*" * 20_000,
        '"' * 20_000,
        "'" * 20_000,
        "a::" * 20_000,
        "{" * 20_000,
        "struct A {" * 5000,
    ],
    ids=lambda text: f"{len(text)} characters from {text[:20]!r}",
)
def test_expensive_idl_text_is_refused_quickly(text: str) -> None:
    begin = time.process_time()
    with pytest.raises(ValueError):  # noqa: PT011  # for whatever reason
        parse_idl_struct("A", text)
    assert time.process_time() - begin < 5
