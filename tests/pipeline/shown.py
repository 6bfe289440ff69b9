"""A program of its own that runs queries with credentials and prints all that Spark shows of them.

ADDRESS CA PASSWORD_FILE WRONG_FILE FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

from effort import patience
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidings.pipeline.session import spark_session

PAGES = ("sql?details=true&planDescription=true", "environment", "jobs", "stages", "executors")


def main() -> None:
    """Run a batch, a stream, and a query that is refused; their plans, pages and errors go to the output."""
    address, ca, password, wrong, folder = sys.argv[1:]
    settings = {"spark.ui.enabled": "true", "spark.ui.port": "0", "spark.sql.ui.explainMode": "extended"}
    spark = spark_session("local[1]", "shown", **settings)
    who = {"node": address, "user": "ada", "ca": ca}
    batch = spark.read.format("tidings").options(**who, passwordFile=password).load()
    batch.explain(True)
    show("batch rows", batch.count())
    stream = spark.readStream.format("tidings").options(
        **who, passwordFile=password, startingOffsets="earliest"
    )
    frame = stream.schema("number long").load()
    query = (
        frame.writeStream.format("json")
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(Path(folder) / "rows"))
    )
    query.awaitTermination(120)
    query.explain(True)
    show("stream rows", spark.read.json(str(Path(folder) / "rows")).count())
    show(json.dumps(query.recentProgress, default=str))
    try:
        spark.read.format("tidings").options(**who, passwordFile=wrong).load().count()
    except PySparkException as error:
        show("error", error)
    show_pages(spark)
    spark.stop()


def show_pages(spark: SparkSession) -> None:
    """Print what the pages of Spark's user interface are made from, and one of them."""
    opener = build_opener(ProxyHandler({}))
    root = spark.sparkContext.uiWebUrl
    application = spark.sparkContext.applicationId
    for page in PAGES:
        with opener.open(f"{root}/api/v1/applications/{application}/{page}", timeout=patience(60)) as answer:
            show("page", page, answer.read().decode())
    with opener.open(f"{root}/StreamingQuery/", timeout=patience(60)) as answer:
        show("page streaming", answer.read().decode())


def show(*words: object) -> None:
    """Say something where the test looks."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")


if __name__ == "__main__":
    main()
