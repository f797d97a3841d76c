"""Critical sections for builds of Python without the GIL.

The methods of our extension classes were written for the GIL: until a method waits or copies without it, no other
thread changes the object. Without the GIL, a critical section of the object keeps this rule, because Python suspends
the section where the method would release the GIL. A step of the compiler begins one in each method of an extension
class, so that no method lacks it, and so that builds with the GIL stay as they are.

The section protects the method's own object. Code that uses another object locks that object (base/object_lock.h).

See https://docs.python.org/3/howto/free-threading-extensions.html#critical-sections.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from typing import Any

from Cython.Compiler import ExprNodes, Nodes, ParseTreeTransforms

HAS_GIL = not sysconfig.get_config_var("Py_GIL_DISABLED")
# No other thread has an object before the end of __cinit__, or after the beginning of __dealloc__.
METHODS_WITHOUT_SECTION = {"__cinit__", "__dealloc__"}


def add_critical_sections() -> None:
    """Let Cython add the sections from now on."""
    ParseTreeTransforms.AdjustDefByDirectives = _AddCriticalSections


def allow_attributes_in_sections() -> None:
    """Let Cython compile sections without a warning for each attribute that Python looks up."""
    ParseTreeTransforms.GilCheck.visit_AttributeNode = ParseTreeTransforms.GilCheck.visit_Node


class _AddCriticalSections(ParseTreeTransforms.AdjustDefByDirectives):  # type: ignore[misc]  # untyped
    def visit_CClassDefNode(self, node: Any) -> Any:
        for method in _find_methods(node.body):
            section = ExprNodes.FirstArgumentForCriticalSectionNode(method.pos, func_node=method)
            method.body = Nodes.CriticalSectionStatNode(method.pos, args=[section], body=method.body)
        return super().visit_CClassDefNode(node)


def _find_methods(statement: Any) -> Iterator[Any]:
    """Return the methods and properties that get a section."""
    if isinstance(statement, Nodes.DefNode):
        if statement.args and statement.name not in METHODS_WITHOUT_SECTION and not _has_yield(statement):
            yield statement
    elif isinstance(statement, Nodes.StatListNode):
        for each in statement.stats:
            yield from _find_methods(each)
    elif isinstance(statement, Nodes.PropertyNode) or (
        isinstance(statement, Nodes.CompilerDirectivesNode) and "staticmethod" not in statement.directives
    ):
        yield from _find_methods(statement.body)


def _has_yield(method: Any) -> bool:
    """Return True for a generator, which cannot keep a section while others run."""
    collector = ParseTreeTransforms.YieldNodeCollector()
    collector.visitchildren(method.body)
    return bool(collector.yields)
