"""DuckDB, DataFusion and Polars: equal bits for nulls, offsets, chunks, one thread and four,
compared by key."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import assert_same_column, mix, mixed, price, spots

ROWS = 120_001


def table():
    """Columns with nulls, in chunks that start inside their memory; and the expected results."""
    random = np.random.default_rng(7)
    x, (a, b) = spots(ROWS), mixed(ROWS)
    valid = [random.random(ROWS) > 0.1 for _ in range(3)]
    whole = pa.table(
        {
            "k": np.arange(ROWS),
            "x": pa.array(x, mask=~valid[0]),
            "a": pa.array(a, mask=~valid[1]),
            "b": pa.array(b, mask=~valid[2]),
        }
    )
    cuts = [0, 3, 2_048, 2_055, 40_001, 100_000, ROWS]
    chunks = pa.concat_tables([whole.slice(p, q - p) for p, q in zip(cuts, cuts[1:])])
    return chunks, (price()(x), valid[0]), (mix()(a, b), valid[1] & valid[2])


def check(found):
    """Checks a table with the key and both results, in any order."""
    _, prices, mixes = table()
    found = found.sort_by("k")
    np.testing.assert_array_equal(found["k"].to_numpy(), np.arange(ROWS))
    assert_same_column(found["p"].combine_chunks(), *prices)
    assert_same_column(found["m"].combine_chunks(), *mixes)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("null_handling", ["default", "special"])
def test_duckdb(threads, null_handling):
    duckdb = pytest.importorskip("duckdb")
    con = duckdb.connect()
    con.sql(f"SET threads = {threads}")
    con.create_function("price", price(), ["FLOAT"], "FLOAT", type="arrow", null_handling=null_handling)
    con.create_function("mix", mix(), ["DOUBLE", "INTEGER"], "DOUBLE", type="arrow", null_handling=null_handling)
    t = table()[0]  # noqa: F841, DuckDB finds it by name
    query = "SELECT k, price(x) AS p, mix(a, b) AS m FROM {} WHERE k >= 0"
    check(con.sql(query.format("t")).to_arrow_table())
    con.sql("CREATE TABLE own AS SELECT * FROM t")
    check(con.sql(query.format("own")).to_arrow_table())


@pytest.mark.parametrize("threads", [1, 4])
def test_datafusion(threads):
    datafusion = pytest.importorskip("datafusion")
    ctx = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(threads))
    f4, f8, i4 = pa.float32(), pa.float64(), pa.int32()
    ctx.register_udf(datafusion.udf(price(), [f4], f4, "immutable", name="price"))
    ctx.register_udf(datafusion.udf(mix(), [f8, i4], f8, "immutable", name="mix"))
    batches = table()[0].to_batches()
    ctx.register_record_batches("t", [batches[:2], batches[2:]])
    check(ctx.sql("SELECT k, price(x) AS p, mix(a, b) AS m FROM t WHERE k >= 0").to_arrow_table())


#: Polars reads its number of threads when it is imported.
POLARS = """
import polars as pl
from conftest import mix, price
from test_sql import check, table
t = pl.from_arrow(table()[0], rechunk=False)
p = pl.col("x").map_batches(price(), return_dtype=pl.Float32)
m = pl.map_batches(["a", "b"], lambda columns: mix()(*columns), return_dtype=pl.Float64)
assert pl.thread_pool_size() == {threads}
check(t.select("k", p.alias("p"), m.alias("m")).to_arrow())
check(t.lazy().select("k", p.alias("p"), m.alias("m")).collect(engine="streaming").to_arrow())
check(mix().on_table("a", "b", out="m")(price().on_table("x", out="p")(t)).to_arrow())
"""


@pytest.mark.parametrize("threads", [1, 4])
def test_polars(threads):
    pytest.importorskip("polars")
    here = Path(__file__).parent
    environment = {**os.environ, "POLARS_MAX_THREADS": str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join([str(here), *sys.path])
    code = POLARS.format(threads=threads)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, env=environment, cwd=here)
