"""How Java and Spark are started where they live for seconds, as in tests."""

from __future__ import annotations

from pathlib import Path

CLASSES = Path(__file__).parents[1] / ".venv" / "spark-classes.jsa"
"""Spark's classes as Java has them in memory, which `make test` writes: see `scripts/spark_classes.py`."""
COMPILED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:NewRatio=1"
"""To compile well, and to tidy up in threads, takes longer than it saves."""
QUICK_JAVA = f"{COMPILED} -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else COMPILED
"""Without the file, or with one that does not fit, Java reads the classes as ever and says nothing."""
QUICK_SPARK = f"--properties-file {Path(__file__).with_name('quick_spark.conf')} pyspark-shell"
"""Arguments for the Spark of a Python program; what the program sets itself takes precedence."""
QUICK_PYTHON = Path(__file__).with_name("quick_python")
"""The Python of Spark's workers, which has pyspark compiled; PYSPARK_PYTHON names it."""
