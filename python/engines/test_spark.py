"""PySpark, if it and Java are installed: `mapInArrow` with two workers."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same, price, spots

pyspark = pytest.importorskip("pyspark")


@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java")
def test_map_in_arrow():
    from pyspark.sql import SparkSession

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *os.sys.path])
    os.environ["PYSPARK_PYTHON"] = os.sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .getOrCreate()
    )
    try:
        import pandas

        x = spots(200_000)
        expected = price()(x)
        frame = session.createDataFrame(pandas.DataFrame({"k": np.arange(len(x)), "x": x})).repartition(4)
        function = price().on_table("x", out="p")

        def priced(batches):
            for batch in batches:
                yield function(batch)

        found = frame.mapInArrow(priced, "k long, x float, p float").toPandas().sort_values("k")
        assert_same(found["p"].to_numpy(), expected)
    finally:
        session.stop()
