"""Type checkers accept the package and its kernels; `cargo xtask python --types` installs them."""

import importlib.util
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(__file__)
EXAMPLES = [os.path.join(HERE, "typed_example.py"), os.path.join(HERE, "..", "..", "examples", "blur.py")]


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed; `cargo xtask python --types` installs it")


def accepts(tmp_path, *words):
    done = subprocess.run([sys.executable, "-m", *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("mypy")
def test_mypy(tmp_path):
    accepts(tmp_path, "mypy", *EXAMPLES)
    accepts(tmp_path, "mypy", "--strict", "--package", "vyre")


@needs("pyright")
def test_pyright(tmp_path):
    accepts(tmp_path, "pyright", "--pythonpath", sys.executable, *EXAMPLES)
