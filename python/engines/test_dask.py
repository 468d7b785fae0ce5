"""Dask distributed: two workers, ten million rows, one of them killed in the middle."""

import os
from pathlib import Path

import numpy as np
import pytest
from conftest import assert_same
from fleet import assert_killed, priced_block, priced_frame

import vyre

distributed = pytest.importorskip("distributed")
import dask  # noqa: E402
import dask.array  # noqa: E402
import dask.dataframe  # noqa: E402
import pandas  # noqa: E402


@pytest.fixture(scope="module")
def client():
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *os.sys.path])
    os.environ["VYRE_THREADS"] = "1"
    # Forking a process that already has threads would copy its locks but not the threads.
    dask.config.set({"distributed.worker.multiprocessing-method": "spawn"})
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address=None, memory_limit=0
    ) as cluster:
        with distributed.Client(cluster) as client:
            yield client
    del os.environ["PYTHONPATH"], os.environ["VYRE_THREADS"]


@pytest.mark.parametrize("killed", [False, True])
def test_ten_million_rows_of_an_array(client, one_process, tmp_path, killed):
    x, expected = one_process
    folder = str(tmp_path) if killed else None
    blocks = dask.array.from_array(x, chunks=250_000)
    found = blocks.map_blocks(priced_block, folder=folder, dtype=np.float32, meta=np.empty(0, np.float32))
    assert_same(found.compute(), expected)
    if killed:
        assert_killed(tmp_path)


@pytest.mark.parametrize("killed", [False, True])
def test_a_dataframe(client, one_process, tmp_path, killed):
    x, expected = one_process
    x, expected = x[:2_000_000], expected[:2_000_000]
    frame = dask.dataframe.from_pandas(pandas.DataFrame({"k": np.arange(len(x)), "x": x}), npartitions=20)
    meta = {"k": np.int64, "x": np.float32, "p": np.float32}
    folder = str(tmp_path) if killed else None
    found = frame.map_partitions(priced_frame, folder=folder, meta=meta).compute().sort_values("k")
    assert_same(found["p"].to_numpy(), expected)
    if killed:
        assert_killed(tmp_path)


def test_partials_from_two_workers(client, one_process):
    x, _ = one_process
    x = x[8:]
    for parts in [1, 2, 7]:
        futures = client.map(lambda part: vyre.partial("sum", part), np.array_split(x, parts))
        found = vyre.combined(client.gather(futures))
        assert_same(np.float32(found.value), vyre.exact_sum(x))
