"""Ray Data: two actors, ten million rows, one of them killed in the middle."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from conftest import assert_same
from fleet import Priced, assert_killed

import vyre

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster():
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    here = str(Path(__file__).parent)
    ray.init(
        num_cpus=2,
        object_store_memory=600 << 20,
        include_dashboard=False,
        _node_ip_address="127.0.0.1",
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.pathsep.join([here, *os.sys.path]), "VYRE_THREADS": "1"}},
    )
    yield
    ray.shutdown()


@pytest.mark.parametrize("killed", [False, True])
def test_ten_million_rows(cluster, one_process, tmp_path, killed):
    x, expected = one_process
    blocks = np.array_split(np.arange(len(x)), 40)
    tables = [pa.table({"k": block, "x": x[block[0] : block[-1] + 1]}) for block in blocks]
    data = ray.data.from_arrow(tables).map_batches(
        Priced,
        fn_constructor_kwargs={"folder": str(tmp_path) if killed else None},
        batch_format="pyarrow",
        batch_size=100_000,
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=1,
    )
    parts = [ray.get(reference) for reference in data.to_arrow_refs()]
    found = pa.concat_tables(parts).select(["k", "p"]).combine_chunks()
    order = np.argsort(found["k"].to_numpy(), kind="stable")
    np.testing.assert_array_equal(found["k"].to_numpy()[order], np.arange(len(x)))
    assert_same(found["p"].to_numpy()[order], expected)
    if killed:
        assert_killed(tmp_path)


def test_partials_from_two_workers(cluster, one_process):
    x, _ = one_process
    whole = vyre.exact_sum(x[8:])
    work = ray.remote(lambda part: vyre.partial("sum", part))
    for parts in [1, 2, 7]:
        found = vyre.combined(ray.get([work.remote(part) for part in np.array_split(x[8:], parts)]))
        assert_same(np.float32(found.value), whole)
