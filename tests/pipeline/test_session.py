"""Sessions: what is looked for before one is made, and what the one of these tests is like."""

from __future__ import annotations

import os
import sys
from importlib import metadata
from pathlib import Path

import pytest
from effort import IS_SOAK
from pyspark.sql import SparkSession

from tidings.errors import MissingExtra, UserError
from tidings.pipeline import session
from tidings.pipeline.session import check_java, check_packages, java_version, major_version, spark_session


def fake_java(home: Path, told: str) -> Path:
    """A folder with a command that says it is that Java."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{told}' >&2\n")
    command.chmod(0o755)
    return home


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setattr(session, "JAVA_PLACES", tmp_path / "jvm")
    return tmp_path


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ("command not found", 0),
    ],
)
def test_the_version_of_java_is_read(told: str, version: int) -> None:
    assert major_version(told) == version


def test_without_java_the_command_to_type_is_named(alone: Path) -> None:
    with pytest.raises(UserError, match=r"there is no Java: Spark needs 17 or newer \(apt install"):
        check_java()


def test_an_old_java_is_named(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = fake_java(alone / "old", 'openjdk version "11.0.2"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(UserError, match=r"Java 11 is too old.*apt install openjdk-17-jre-headless"):
        check_java()


def test_a_newer_java_of_this_machine_is_taken_instead(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(fake_java(alone / "old", 'java version "1.8.0_402"')))
    newer = fake_java(alone / "jvm" / "java-17", 'openjdk version "17.0.15"')
    check_java()
    assert os.environ["JAVA_HOME"] == str(newer)


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    assert java_version(None) == java_version(tmp_path) == 0
    assert java_version(fake_java(tmp_path / "odd", "hello")) == 0


@pytest.mark.parametrize(
    ("versions", "problem"),
    [
        ({"pyspark": "4.1.2", "pandas": "2.3.3"}, "PySpark 4.1.2 is too old: tidings needs 4.2 or newer"),
        ({"pyspark": "4.3.0", "pandas": "3.0.1"}, "pandas 3.0.1 is too new for PySpark 4.3.0.*before 3"),
    ],
    ids=["pyspark", "pandas"],
)
def test_versions_that_do_not_work_are_named(
    versions: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    with pytest.raises(UserError, match=problem):
        check_packages()


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(MissingExtra, match=r"tidings\[spark\]"):
        check_packages()


def test_the_oldest_pyspark_is_the_first_with_what_the_source_uses() -> None:
    from pyspark.sql.streaming import datasource

    assert {"ReadLimit", "ReadMaxRows", "SupportsTriggerAvailableNow"} <= vars(datasource).keys()
    assert session.PYSPARK_OLDEST == (4, 2)


def test_a_master_and_another_server_are_a_contradiction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://there:15002")
    with pytest.raises(UserError, match=r"local\[2\] was asked for, but SPARK_REMOTE names sc://there:15002"):
        spark_session("local[2]")


def test_a_session_stays_on_this_machine_and_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_workers_of_a_session_on_this_machine_run_its_python_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    session._stay_here()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "another")
    session._stay_here()
    assert os.environ["PYSPARK_PYTHON"] == "another"


def test_workers_run_this_python_and_find_tidings(spark: SparkSession) -> None:
    def told(_rows: object) -> list[tuple[str, str]]:
        import tidings

        return [(sys.executable, tidings.__name__)]

    assert spark.sparkContext.parallelize([0], 1).mapPartitions(told).collect() == [
        (sys.executable, "tidings")
    ]


def test_workers_import_pyspark_compiled_but_in_the_long_run(spark: SparkSession) -> None:
    def told(_rows: object) -> list[str]:
        import pyspark

        return [pyspark.__file__]

    (place,) = spark.sparkContext.parallelize([0], 1).mapPartitions(told).collect()
    assert ("pyspark.zip" in place) == IS_SOAK


def test_a_second_session_is_the_first(spark: SparkSession) -> None:
    assert spark_session("local[2,4]").sparkContext is spark.sparkContext
