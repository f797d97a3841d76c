"""The backend is chosen when it is first used, and its classes are those that `msgq` has."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from importlib import import_module

import pytest

import msgq
from msgq.errors import BackendNotAvailableError
from msgq.impl import backend, fake
from msgq.topic import api
from tests.support import DEADLINE

MODULES = ("msgq", "msgq.topic.api", "msgq.ipc_pyx")
USES = (
    *("msgq.Context", "msgq.PubSocket", "msgq.SubSocket", "msgq.Poller", "msgq.context", "msgq.topic.api.PubSocket"),
    *("msgq.pub_sock('e')", "msgq.sub_sock('e')", "msgq.PubMaster(['e'])", "msgq.SubMaster(['e'])"),
)


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=DEADLINE)


def import_with_backend(name: str) -> str:
    """Return code that imports msgq with this backend asked for."""
    return f"import os; os.environ['MSGQ_BACKEND'] = {name!r}; import msgq, msgq.topic.api, msgq.ipc_pyx\n"


class TestBadName:
    def test_import_of_msgq_succeeds_with_invalid_backend_name(self) -> None:
        result = run_python(
            "-c", import_with_backend("pigeons") + "print(msgq.__version__, msgq.stats.topics('none-has-this'))"
        )
        assert result.stderr == ""
        assert result.stdout == f"{msgq.__version__} []\n"

    @pytest.mark.parametrize("use", USES)
    def test_first_use_with_invalid_backend_name_raises_one_line_error(self, use: str) -> None:
        code = f"try:\n    {use}\nexcept msgq.MsgqError as error:\n    print(type(error).__name__, error)"
        text = "BackendNotAvailableError MSGQ_BACKEND='pigeons' is not a backend; give one of msgq, zmq, fake\n"
        assert run_python("-c", import_with_backend("pigeons") + code).stdout == text

    def test_invalid_backend_name_raises_until_it_is_corrected(self) -> None:
        code = """
for name in ("pigeons", "pigeons", "fake"):
    os.environ["MSGQ_BACKEND"] = name
    try:
        print(msgq.PubSocket.__module__)
    except ImportError as error:
        print("no")
"""
        assert run_python("-c", import_with_backend("pigeons") + code).stdout == "no\nno\nmsgq.impl.fake.topic\n"


@pytest.mark.parametrize("name", ["msgq", "zmq", "fake"])
def test_msgq_exports_classes_of_chosen_backend(name: str, prefix: str) -> None:
    code = f"""
os.environ["OPENPILOT_PREFIX"] = {prefix!r}
from msgq import Context, Poller, PubSocket, SubSocket
from msgq.impl import backend
module = backend.load_backend({name!r})
assert (Context, Poller, PubSocket, SubSocket) == (module.Context, module.Poller, module.PubSocket, module.SubSocket)
assert msgq.ipc_pyx.PubSocket is msgq.topic.api.PubSocket is PubSocket
assert isinstance(msgq.context, Context) and msgq.context is msgq.topic.api.context
with msgq.pub_sock("e") as pub, msgq.sub_sock("e") as sub:
    assert (type(pub), type(sub)) == (PubSocket, SubSocket)
os.environ["MSGQ_BACKEND"] = "pigeons"
assert msgq.PubSocket is PubSocket
print("well")
"""
    result = run_python("-c", import_with_backend(name) + code)
    assert result.stdout == "well\n", result.stderr


class TestModules:
    """As if the names had been there from the start."""

    @pytest.mark.parametrize("module", MODULES)
    def test_star_import_provides_all_public_names(self, module: str) -> None:
        code = f"from {module} import *\nimport sys\nprint(set(sys.modules[{module!r}].__all__) - set(globals()))"
        assert run_python("-c", code).stdout == "set()\n"

    @pytest.mark.parametrize("module", MODULES)
    def test_dir_of_module_lists_names_before_their_first_use(self, module: str) -> None:
        code = (
            import_with_backend("pigeons")
            + f"import sys; m = sys.modules[{module!r}]; print(set(m.__all__) - set(dir(m)))"
        )
        assert run_python("-c", code).stdout == "set()\n"

    @pytest.mark.parametrize("module", MODULES)
    def test_unknown_name_in_module_raises_attribute_error(self, module: str) -> None:
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'PigeonSocket'"):
            _ = import_module(module).PigeonSocket

    def test_help_of_msgq_shows_socket_classes(self) -> None:
        text = run_python("-c", "import msgq; help(msgq)").stdout
        assert all(f"class {name}" in text for name in ("Context", "PubSocket", "SubSocket"))

    def test_socket_classes_can_be_pickled(self) -> None:
        for kind in (msgq.Context, msgq.PubSocket, msgq.SubSocket, msgq.Poller):
            assert pickle.loads(pickle.dumps(kind)) is kind

    def test_used_name_is_stored_in_module_dictionary(self) -> None:
        """So that further uses are as fast as those of any other."""
        code = (
            "import msgq; before = 'PubSocket' in vars(msgq); msgq.PubSocket; print(before, 'PubSocket' in vars(msgq))"
        )
        assert run_python("-c", code).stdout == "False True\n"


class TestChoose:
    def test_all_modules_use_new_backend_after_set_backend(self) -> None:
        before = msgq.PubSocket, api.PubSocket
        former = backend.set_backend(fake)
        try:
            assert msgq.PubSocket is api.PubSocket is import_module("msgq.ipc_pyx").PubSocket is fake.PubSocket
        finally:
            assert backend.set_backend(former) is fake
        assert (msgq.PubSocket, api.PubSocket) == before

    def test_name_used_in_simulation_is_not_stored_in_module(self) -> None:
        code = """
from msgq.simulation import Simulation
with Simulation():
    from msgq import PubSocket
    print(PubSocket.__module__)
try:
    msgq.PubSocket
except ImportError:
    print("none")
"""
        assert run_python("-c", import_with_backend("pigeons") + code).stdout == "msgq.impl.fake.topic\nnone\n"

    def test_name_lookup_during_backend_change_stores_no_old_class(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = {"__name__": "program"}
        find, _ = backend.make_lazy_attributes(names)
        former = backend.current_backend()

        def choose_meanwhile() -> object:
            assert backend.set_backend(fake) is former
            return former

        try:
            with monkeypatch.context() as patch:
                patch.setattr(backend, "current_backend", choose_meanwhile)
                assert find("PubSocket") is former.PubSocket
            assert "PubSocket" not in names
            assert find("PubSocket") is fake.PubSocket
        finally:
            backend.set_backend(former)
            backend._lazy_namespaces.remove(names)

    def test_first_use_keeps_backend_chosen_by_another_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        former = backend.set_backend(None)

        def load_meanwhile() -> object:
            assert backend.set_backend(fake) is None
            return former

        try:
            with monkeypatch.context() as patch:
                patch.setattr(backend, "load_backend", load_meanwhile)
                assert backend.current_backend() is fake
            assert backend.current_backend() is fake
        finally:
            backend.set_backend(former)


def test_reading_of_time_selects_no_backend() -> None:
    former = backend.set_backend(None)
    try:
        assert msgq.to_host_time(msgq.time_ns(), time.CLOCK_REALTIME) > 0
        assert backend.set_backend(None) is None
    finally:
        backend.set_backend(former)


def test_command_without_zmq_library_prints_one_line_error() -> None:
    code = "import sys; sys.modules['zmq'] = None; from msgq.cli import main; main(['pub', 'e', 'x'])"
    result = run_python("-c", import_with_backend("zmq") + code)
    assert result.returncode == 1
    assert len(result.stderr.splitlines()) == 1
    assert "pip install 'msgq-bus[zmq]'" in result.stderr


def test_unavailable_backend_raises_backend_not_available_error() -> None:
    with pytest.raises(BackendNotAvailableError, match="pigeons"):
        backend.load_backend("pigeons")
