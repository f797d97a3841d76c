"""Generic code uses the interface of kinds (`msgq.kinds`), and never asks which kind an endpoint has."""

from __future__ import annotations

import re

from msgq import kinds
from tests.meta.sources import ROOT, imports, modules

#: Modules outside of a kind's folder that name a kind. The list may only become shorter.
NAME_A_KIND = {
    "msgq.lake.metrics.queues",  # tables of one kind
    "msgq.spark.tables.queues",
}
FOLDERS = {"topic": "msgq.topic", "channel": "msgq.channel", "records": "msgq.records", "queue": "msgq.workqueue"}
FOLDERS |= {"frames": "visionipc"}


def test_each_endpoint_kind_has_all_required_parts() -> None:
    assert {kind.name: kind.package for kind in kinds.list_kinds()} == FOLDERS
    for kind in kinds.list_stored_kinds():
        assert all((kind.stats, kind.source, kind.playback, kind.cleanup, kind.simulation, kind.publish))
    assert all(kind.playback for kind in kinds.list_kinds())


def test_endpoint_kind_names_are_imported_only_in_listed_modules() -> None:
    names = {f"{package}.names" for package in FOLDERS.values()}
    users = {
        module
        for module, paths in modules().items()
        for path in paths
        for found in imports(path)
        if found.module in names and not any(module.startswith(f"{package}.") for package in FOLDERS.values())
    }
    assert users == NAME_A_KIND


def test_generic_modules_do_not_compare_kind_names() -> None:
    compared = re.compile(r"\bkind(\.name)? (==|!=|in|is) \(?\"(topic|channel|records|queue|frames)\"")
    paths = [path for paths in modules().values() for path in paths]
    assert not [str(path.relative_to(ROOT)) for path in paths if compared.search(path.read_text())]
