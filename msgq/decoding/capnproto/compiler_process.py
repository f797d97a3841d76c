"""A child process that compiles a Cap'n Proto schema, and writes its binary form to the standard output.

pycapnp ends its process if a text is not a valid schema. The child protects the calling process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SCHEMAS_MAX = 100_000
_GENERIC_NESTING_MAX = 20  # generic structs in each other


def main(path: str) -> None:
    """Write the structs and enums of a file, and all types that they use.

    Absolute imports refer to the file's folder.
    """
    import capnp

    library = Path(capnp.__file__).parent
    own = capnp.load(str(library / "schema.capnp"), imports=[str(library.parent)])
    request, node = own.CodeGeneratorRequest, own.Node
    # The file may import another copy of c++.capnp, which schema.capnp also imports. One parser accepts only one copy.
    parser = capnp.SchemaParser()
    module = parser.load(path, imports=[str(Path(path).parent)])
    encoded_nodes = {schema.node.id: schema.node.as_builder().to_bytes() for schema in _iterate_needed_schemas(module)}
    message = request.new_message()
    nodes = message.init("nodes", len(encoded_nodes))
    for number, content in enumerate(encoded_nodes.values()):
        with node.from_bytes(content) as reader:
            nodes[number] = reader
    sys.stdout.buffer.write(message.to_bytes())


def _iterate_needed_schemas(module: Any) -> Iterator[Any]:
    """Yield the schemas of a file, and the schemas of their fields."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(nested.schema, ()) for nested in _iterate_nested_definitions(module)]
    seen = set[tuple[str, ...]]()
    while waiting and len(seen) < _SCHEMAS_MAX:
        schema, way = waiting.pop()
        yield schema
        for field in getattr(schema, "fields", {}).values():
            inner, field_proto = _find_field_schema(field), field.proto
            # Only the path to a generic struct tells the type of a parameter.
            key = (
                *(way if schema.node.isGeneric else ()),
                str(field_proto.slot.type if field_proto.which() == "slot" else field_proto),
            )
            if inner is not None and key not in seen and len(key) < _GENERIC_NESTING_MAX:
                seen.add(key)
                waiting.append((inner, key))


def _iterate_nested_definitions(module: Any) -> Iterator[Any]:
    """Yield the structs and enums defined in a file or a struct."""
    for nested in module.schema.node.nestedNodes:
        value = getattr(module, nested.name, None)  # an annotation is not an attribute
        if value is None or not hasattr(value, "schema"):
            continue
        if value.schema.node.which() in ("struct", "enum"):
            yield value
        yield from _iterate_nested_definitions(value)


def _find_field_schema(field: Any) -> Any:
    """Return the schema of the struct or enum in a field, or in the elements of a list; None: other type."""
    import capnp

    try:
        schema = field.schema
        while hasattr(schema, "elementType"):
            schema = schema.elementType
    except capnp.KjException:  # it is a number, a text, ...
        return None
    return schema if hasattr(schema, "node") and schema.node.which() in ("struct", "enum") else None


if __name__ == "__main__":
    main(sys.argv[1])
