"""What Spark refuses is one line of ours, not a page of Java."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
from pyspark.errors import AnalysisException, PySparkRuntimeError
from pyspark.sql import SparkSession

from msgq.errors import IpcError, SparkError
from msgq.spark.runtime import session as sessions
from msgq.spark.runtime.refusals import first_line, spark_errors


def test_an_error_of_spark_is_its_first_line() -> None:
    with pytest.raises(SparkError) as caught, spark_errors():
        raise AnalysisException(message="\n  [TABLE_OR_VIEW_NOT_FOUND] nowhere \n== SQL ==\nand a page more")
    assert str(caught.value) == "[TABLE_OR_VIEW_NOT_FOUND] nowhere"
    assert not isinstance(caught.value, (IpcError, ValueError)), "no value, and nothing between processes"


def test_other_errors_stay_what_they_are() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("x")


def test_a_text_of_blanks_is_no_reason() -> None:
    assert first_line(" \n ") == "Spark gives no reason"


def test_a_spark_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(_: object) -> SparkSession:
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", ended)
    with pytest.raises(SparkError, match=r"does not start on local\[1\]: .*JAVA_GATEWAY_EXITED"):
        sessions._start({}, "local[1]")
