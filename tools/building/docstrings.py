"""Gives compiled members the docstrings of their stubs: `help` shows what editors show, from one text.

Cython offers no place for this. So its step that puts signatures in front of docstrings is replaced by one that takes
the docstrings from the stub first. With a Cython whose step is another one, the build warns, and members may lack
docstrings and signatures: nothing else depends on them.
"""

from __future__ import annotations

import ast
import warnings
from pathlib import Path
from typing import Any

from Cython.Compiler import AutoDocTransforms
from Cython.Compiler.StringEncoding import EncodedString

NEEDED = ("visit_ClassDefNode", "visit_DefNode", "visit_PropertyNode", "_fmt_signature")
Step: Any = getattr(AutoDocTransforms, "EmbedSignature", object)
Texts = dict[tuple[str | None, str], str]


def use_stubs() -> None:
    """Let what Cython compiles in this process have the docstrings of the stubs."""
    if missing := [name for name in NEEDED if not hasattr(Step, name)]:
        warn(f"its EmbedSignature has no {', '.join(missing)}")
    else:
        vars(AutoDocTransforms)["EmbedSignature"] = StubDocstrings


def warn(difference: object) -> None:
    """Warn that docstrings may be missing, with the reason."""
    warnings.warn(f"compiled members may lack docstrings: this Cython works differently, {difference}", stacklevel=2)


def docstrings(stub: Path) -> Texts:
    """Return a stub's docstrings, each by the name of its class, None for a function, and its own name.

    The docstring of a class also contains its signature, because `help` shows it nowhere else.
    """
    texts: Texts = {}
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            texts[None, node.name] = ast.get_docstring(node) or ""
        elif isinstance(node, ast.ClassDef):
            texts |= class_docstrings(node)
    return texts


def class_docstrings(kind: ast.ClassDef) -> Texts:
    """Return those of a class and its members."""
    methods = [node for node in kind.body if isinstance(node, ast.FunctionDef)]
    members = {node.name: text for node in methods if (text := ast.get_docstring(node))}  # setters have none
    constructor_docs = [members.pop(name, "") for name in ("__init__", "__new__")]
    whole = "\n\n".join(filter(None, [ast.get_docstring(kind), *constructor_docs]))
    return {(None, kind.name): whole} | {(kind.name, name): text for name, text in members.items()}


class StubDocstrings(Step):  # type: ignore[misc]  # found at run time
    """Puts them where Cython has the docstrings of a `.pyx`, just before it puts signatures in front of them."""

    texts: Texts

    def __call__(self, module: Any) -> Any:
        """Work on the tree of a module."""
        stub = Path(str(module.pos[0].filename)).with_suffix(".pyi")
        self.texts = docstrings(stub) if stub.exists() else {}  # none: a part of Cython, which may have no file
        try:
            return super().__call__(module)
        except (AttributeError, TypeError) as error:
            warn(error)
            return module  # in which only docstrings are changed

    def document(self, holder: Any, owner: str | None, name: str) -> None:
        """Replace the docstring that Cython has, if the stub has one."""
        if text := self.texts.get((owner, name)):
            holder.doc = EncodedString(text)

    def visit_CClassDefNode(self, node: Any) -> Any:
        """A class."""
        self.document(node.entry.type.scope, None, node.class_name)
        return self.visit_ClassDefNode(node)

    def visit_DefNode(self, node: Any) -> Any:
        """A function, a method, or what makes an object: its parameters are the class's."""
        self.document(node.entry, self.class_name, node.name)
        super().visit_DefNode(node)
        if node.name in ("__cinit__", "__init__") and (None, self.class_name) in self.texts:  # the latter comes later
            named = node.num_kwonly_args
            positional = len(node.args) - named - 1  # without self
            signature = self._fmt_signature(
                None, self.class_name, node.args, npargs=positional, nkargs=named, hide_self=True
            )
            kind = self.class_node.entry.type.scope
            kind.doc = EncodedString(f"{signature}\n--\n\n{self.texts[None, self.class_name]}")
        return node

    def visit_PropertyNode(self, node: Any) -> Any:
        """A property, or an attribute that is public."""
        self.document(node.entry, self.class_name, node.entry.name)
        return super().visit_PropertyNode(node)
