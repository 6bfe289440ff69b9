"""One Spark for the tests of this folder in a process: to start it takes longer than most of them together.

It is also a Spark Connect server, for programs that tests start.

Under pytest-xdist, `-p tests.spreading` sends the tests of this folder to one worker, so that one Spark is
started and not one for each worker. `--dist loadgroup` does not: `tests/spreading.py` says why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from ports import free_port

from tidings.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two cores of this machine; its workers import all that lies in the checkout."""
    folder = tmp_path_factory.mktemp("spark")
    # Spark starts its Python workers with the surroundings that its Java was started with.
    found = (str(ROOT / "src"), str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", ""))
    path = os.pathsep.join(found)
    with pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("PYTHONPATH", path.rstrip(os.pathsep))
        surroundings.delenv("SPARK_REMOTE", raising=False)
        session = spark_session(
            "local[2,4]",
            "tests",
            **{
                "spark.ui.enabled": "false",
                "spark.sql.shuffle.partitions": 2,
                # As quick_spark.conf has it, and in the long run too.
                "spark.sql.codegen.wholeStage": "false",
                "spark.python.sql.dataFrameDebugging.enabled": "false",
                "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
                "spark.connect.grpc.binding.address": "127.0.0.1",
                "spark.connect.grpc.binding.port": free_port(),
                "spark.sql.warehouse.dir": folder / "warehouse",
                "spark.local.dir": folder / "local",
            },
        )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def server(spark: SparkSession) -> str:
    """Address of that Spark, for programs that use Spark Connect."""
    return f"sc://127.0.0.1:{spark.sparkContext.getConf().get('spark.connect.grpc.binding.port')}"
