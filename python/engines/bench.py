"""Cost of vyre inside engines: per batch against an identity function and a NumPy copy, and rows
per second against Numba's `vectorize`.

    python bench.py                 # every engine that is installed
        python bench.py duckdb polars   # only these

Black-Scholes on f32; alternating rounds, medians. Results are compared with those of one process, bit for bit for vyre.
"""

import os
import statistics
import sys
import time
from math import erf, exp, log, sqrt
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("VYRE_THREADS", "1")

from conftest import MARKET, assert_same, price, spots  # noqa: E402

import vyre  # noqa: E402

ROWS = 4_000_000
COPY = "kernel copy(x: read f32[], y: output f32[] len_of x) over x { y[invocation.x] = x[invocation.x] }"


def numba_price():
    """The same formula as a Numba ufunc."""
    import numba

    strike, rate, volatility, years = (np.float32(MARKET[name]) for name in ("strike", "rate", "volatility", "years"))
    half, root_half = np.float32(0.5), np.float32(0.70710678)

    @numba.vectorize(["float32(float32)"], nopython=True)
    def price(s):
        spread = volatility * np.float32(sqrt(years))
        d1 = (np.float32(log(s / strike)) + (rate + half * volatility * volatility) * years) / spread
        d2 = d1 - spread
        low = half + half * np.float32(erf(d1 * root_half))
        high = half + half * np.float32(erf(d2 * root_half))
        return s * low - strike * np.float32(exp(-rate * years)) * high

    return price


class OnArrow:
    """A NumPy ufunc wrapped as a function of Arrow columns, in the usual way."""

    __name__ = "ufunc"

    def __init__(self, function):
        self.function = function

    def __call__(self, column):
        if hasattr(column, "to_arrow"):
            import polars

            return polars.Series(self.function(column.to_numpy()))
        return pa.array(self.function(column.to_numpy()))


def identity(column):
    return column


def duckdb(functions, x):
    import duckdb

    con = duckdb.connect()
    con.sql("SET threads = 1")
    t = pa.table({"x": x})  # noqa: F841
    con.sql("CREATE TABLE own AS SELECT * FROM t")
    for name, function in functions.items():
        con.create_function(name, function, ["FLOAT"], "FLOAT", type="arrow", null_handling="special")

    def run(name):
        return con.sql(f"SELECT {name}(x) AS y FROM own").to_arrow_table()["y"]

    return run, 2048


def datafusion(functions, x):
    import datafusion

    ctx = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    batches = pa.table({"x": x}).to_batches(max_chunksize=8192)
    ctx.register_record_batches("t", [batches])
    for name, function in functions.items():
        ctx.register_udf(datafusion.udf(function, [pa.float32()], pa.float32(), "immutable", name=name))
    return lambda name: ctx.sql(f"SELECT {name}(x) AS y FROM t").to_arrow_table()["y"], 8192


def polars(functions, x):
    import polars as pl

    frames = [pl.DataFrame({"x": part}) for part in np.split(x, range(100_000, len(x), 100_000))]

    def run(name):
        column = pl.col("x").map_batches(functions[name], return_dtype=pl.Float32)
        return pa.chunked_array([chunk for frame in frames for chunk in pa.chunked_array(frame.select(column)["x"]).chunks])

    return run, 100_000


def ray(functions, x):
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = str(Path(__file__).parent)
    ray.init(
        num_cpus=2,
        object_store_memory=600 << 20,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, *sys.path]), "VYRE_THREADS": "1"}},
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    tables = [pa.table({"x": part}) for part in np.split(x, range(100_000, len(x), 100_000))]
    data = ray.data.from_arrow(tables).materialize()

    def run(name):
        function = functions[name]
        done = data.map_batches(
            lambda table: pa.table({"y": function(table["x"])}), batch_format="pyarrow", batch_size=None
        )
        return pa.concat_tables([ray.get(part) for part in done.to_arrow_refs()])["y"]

    return run, 100_000


def dask(functions, x):
    import dask.array
    import distributed

    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, memory_limit=0
    )
    client = distributed.Client(cluster)
    blocks = dask.array.from_array(x, chunks=100_000).persist()
    distributed.wait(blocks)

    def run(name):
        # Blocks are NumPy arrays.
        function = functions[name]
        found = blocks.map_blocks(function.function if isinstance(function, OnArrow) else function, dtype=np.float32, meta=np.empty(0, np.float32))
        return pa.chunked_array([pa.array(client.compute(found).result())])

    return run, 100_000


def medians(run, names, rounds):
    for name in names:
        run(name)
    times = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            start = time.perf_counter()
            run(name)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(all) for name, all in times.items()}


def main(wanted):
    x = spots(ROWS)[8:]
    expected = price()(x)
    # NumPy's copy is the minimum cost of a function that returns new memory.
    functions = {
        "vyre": price(),
        "copy": vyre.arrow(vyre.kernel(COPY)),
        "plain": OnArrow(np.copy),
        "identity": identity,
    }
    try:
        functions["numba"] = OnArrow(numba_price())
    except ImportError:
        print("numba is not installed")
    # Sizes up to the measured one: calls are routed, verified and compiled well before they are
    # timed.
    for size in (2048, 8192, 100_000):
        for _ in range(40):
            for name in ("vyre", "copy"):
                functions[name](pa.array(x[:size]))
    vyre.settle()
    print(f"{'engine':<11} {'rows/batch':>10} {'identity':>10} {'plain copy':>10} {'adapter':>10} {'vyre':>12} {'numba':>12}   vyre/numba")
    for engine in (duckdb, datafusion, polars, ray, dask):
        if wanted and engine.__name__ not in wanted:
            continue
        try:
            run, batch = engine(functions, x)
        except ImportError as error:
            print(f"{engine.__name__:<11} {error}")
            continue
        assert_same(run("vyre").to_numpy(), expected)
        rounds = 3 if engine in (ray, dask) else 9
        took = medians(run, list(functions), rounds)
        batches = -(-len(x) // batch)
        empty = took["identity"] / batches * 1e6
        plain, adapter = ((took[name] - took["identity"]) / batches * 1e6 for name in ("plain", "copy"))
        rates = {name: len(x) / took[name] / 1e6 for name in ("vyre", "numba") if name in took}
        numba = rates.get("numba", float("nan"))
        print(
            f"{engine.__name__:<11} {batch:>10,} {empty:>7.1f} µs {plain:>7.1f} µs {adapter:>7.1f} µs {rates['vyre']:>8.1f} M/s "
            f"{numba:>8.1f} M/s   {rates['vyre'] / numba:.2f}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
