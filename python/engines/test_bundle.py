"""Bundles for workers: frozen workers that run on one, and workers that differ from the machine
that made it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import price, spots

import vyre

WORKER = """
import sys
import numpy as np
from conftest import price, spots
import vyre
x = spots(3000)
for rows in (1, 2, 3, 700, 3000):
    price()(x[:rows])
print(vyre.certified()[0])
sys.stdout.flush()
np.save(sys.argv[1], price()(x))
"""


def worker(tmp_path, **environment):
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "VYRE_TABLES": "off", "VYRE_BACKENDS": "cpu", **environment}
    command = [sys.executable, "-c", WORKER, str(tmp_path / "prices.npy")]
    return subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, timeout=60)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "fleet.bundle"
    price().warm(spots(4000))
    vyre.bundle([price(), price().on_table("x", out="y"), price().kernel], path, origin="the lab")
    return path


def test_a_frozen_worker_runs_on_a_bundle(bundle, tmp_path):
    import numpy as np

    done = worker(tmp_path, VYRE_BUNDLE=str(bundle), VYRE_FROZEN="on")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(': certified by "the lab"\n'), done.stdout
    expected = price()(spots(3000))
    np.testing.assert_array_equal(np.load(tmp_path / "prices.npy").view(np.uint32), expected.view(np.uint32))


def test_without_a_bundle_a_frozen_worker_refuses(tmp_path):
    done = worker(tmp_path, VYRE_FROZEN="on")
    assert done.returncode != 0 and "frozen" in done.stderr


def test_a_worker_with_another_processor_says_so(bundle, tmp_path):
    device = vyre.certified()[0].device
    other = tmp_path / "other.bundle"
    text = bundle.read_text()
    assert device in text
    other.write_text(text.replace(device, "Another Processor"))
    done = worker(tmp_path, VYRE_BUNDLE=str(other))
    # The edited bundle is refused, or the worker certifies itself.
    if done.returncode == 0:
        assert f'certified here; "the lab" certifies it for device Another Processor, not {device}' in done.stdout
    else:
        assert "bundle" in done.stderr


def test_a_bundle_that_cannot_be_read_is_an_error(tmp_path):
    done = worker(tmp_path, VYRE_BUNDLE=str(tmp_path / "none"))
    assert done.returncode != 0 and "bundle" in done.stderr and "none" in done.stderr
