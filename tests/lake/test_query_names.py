"""Tables that an SQL query names, although engines do not distinguish upper and lower case."""

from __future__ import annotations

import pytest

from msgq.errors import InvalidValueError
from msgq.lake.query_names import find_named_tables
from tests.cases import each_case

NAMES = ["messages", "silver_imu", "silver_imu_raw", "silver_Pose", "silver_pose", "silver_/a b"]


@each_case(
    "query, named",
    [
        ("SELECT v FROM silver_imu_raw", ["silver_imu_raw"]),
        ("select V from SILVER_IMU", ["silver_imu"]),
        ("SELECT * FROM `silver_/a b` JOIN messages", ["messages", "silver_/a b"]),
        ("SELECT * FROM silver_pose", ["silver_pose"]),
        ("SELECT * FROM `silver_Pose`", ["silver_Pose"]),
        ("SELECT 1", []),
    ],
)
def test_query_names_whole_words_in_their_case(query: str, named: list[str]) -> None:
    assert find_named_tables(query, NAMES, "`") == named


@each_case("query", ["SELECT * FROM silver_POSE", "SELECT * FROM silver_pose JOIN silver_Pose"])
def test_names_that_differ_in_case_must_be_clear(query: str) -> None:
    with pytest.raises(InvalidValueError, match="tables 'silver_Pose' and 'silver_pose' differ only in case"):
        find_named_tables(query, NAMES, "`")
