"""Kernels in threads and processes, in scripts without files, at the prompt, and through the
command line."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import vyre
from vyre import In, Out, f32, i32, invocation

HERE = os.path.dirname(__file__)


@vyre.kernel
def triple(x: In[f32], y: Out[f32, "x"]):
    """Three times."""
    y[invocation.x] = x[invocation.x] * 3.0


@vyre.elementwise
def plus(x: f32, n: i32) -> f32:
    return x + f32(n)


TEXT = "const N: u32 = 1\nkernel fill(y: output u32[N]) over N { y[invocation.x] = N }"


def test_kernels_pickle_as_text():
    again = pickle.loads(pickle.dumps(triple))
    assert again is triple
    plain = vyre.kernel(TEXT, N=3)
    assert pickle.loads(pickle.dumps(plain)) is plain
    stored = pickle.dumps(plus)
    assert b"fn plus" in stored and pickle.loads(stored)(np.ones(2, np.float32), 2).tolist() == [3, 3]
    call, (text, constants, fingerprint, *rest) = triple.__reduce__()
    with pytest.raises(vyre.ProgramError, match="create it again"):
        call(text, constants, "0" * 64, *rest)
    error = pickle.loads(pickle.dumps(vyre.ProgramError("no", [{"code": "V001", "help": None}])))
    assert error.code == "V001" and str(error) == "no"


def work(kernel, seed):
    """Runs in a worker; returns whether the result was correct."""
    random = np.random.default_rng(seed)
    for _ in range(20):
        x = random.integers(0, 1000, random.integers(1, 5000)).astype(np.float32)
        if not np.array_equal(kernel(x), x * 3):
            return False
    return bool(vyre.sum(np.ones(10, np.float32)) == 10)


def test_eight_threads():
    right = []
    threads = [threading.Thread(target=lambda seed=seed: right.append(work(triple, seed))) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 8


def test_others_run_while_a_long_call_does():
    endless = vyre.kernel("kernel endless(x: read_write f32[]) { while x[0] == x[0] { x[0] = 1.0 } }")
    began, ended = threading.Event(), []

    def call():
        began.set()
        with pytest.raises(vyre.Timeout):
            endless.run(np.ones(1, np.float32), timeout=0.5)
        ended.append(True)

    thread = threading.Thread(target=call)
    thread.start()
    began.wait()
    rounds = sum(1 for _ in range(1000) if not ended)
    thread.join()
    assert ended == [True] and rounds == 1000


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes(method):
    assert work(triple, 0)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.starmap(work, [(triple, seed) for seed in range(4)]) == [True] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_of_fork_goes_on():
    assert work(triple, 0)
    child = os.fork()
    if child == 0:
        os._exit(0 if work(triple, 1) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert work(triple, 2)


def run(*words, code=0, **options):
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=100, **options)
    assert done.returncode == code, done.stderr
    return done


SCRIPT = textwrap.dedent(
    """
    import numpy as np, vyre
    from vyre import *

    @vyre.kernel
    def add_one(x: In[f32], y: Out[f32, "x"]):
        y[invocation.x] = x[invocation.x] + 1.0

    print(add_one(np.ones(3, np.float32)).tolist())
    """
)


def test_a_command_of_words():
    assert run("-c", SCRIPT).stdout == "[2.0, 2.0, 2.0]\n"


def test_a_script_on_standard_input(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    with open(path) as file:
        assert run("-", stdin=file).stdout == "[2.0, 2.0, 2.0]\n"


def test_a_script_from_a_pipe_says_that_its_text_is_gone():
    """Python keeps no source of code read from a pipe; kernels from text work there."""
    done = subprocess.run([sys.executable, "-"], input=SCRIPT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 1 and "the text of `add_one` in <stdin> cannot be read" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no terminals to play here")
def test_the_prompt():
    import pty

    def play(out, seen=b""):
        while not seen.endswith(b">>> "):
            seen += os.read(out, 1000)
        return seen

    own, other = pty.openpty()
    environment = {**os.environ, "TERM": "dumb", "PYTHON_BASIC_REPL": "1"}
    words = [sys.executable, "-i", "-q"]
    prompt = subprocess.Popen(words, stdin=other, stdout=other, stderr=other, env=environment, close_fds=True)
    try:
        play(own)
        for part in SCRIPT.strip().replace("\n\n", "\n").split("\n@"):
            lines = part if part.startswith("import") else "@" + part
            for line in lines.replace("\nprint", "\n\nprint").split("\n"):
                os.write(own, line.encode() + b"\n")
        seen = b""
        while b"[2.0, 2.0, 2.0]" not in seen and b"Error" not in seen:
            seen += os.read(own, 1000)
        assert b"[2.0, 2.0, 2.0]" in seen, seen.decode()
    finally:
        prompt.kill()
        prompt.wait()
        os.close(own)
        os.close(other)


def test_a_notebook():
    """Notebooks register each cell's source with `linecache`."""
    import linecache

    name = "<cell 7>"
    linecache.cache[name] = (len(SCRIPT), None, SCRIPT.splitlines(keepends=True), name)
    names = {}
    exec(compile(SCRIPT, name, "exec"), names)
    assert "<pre>" in names["add_one"]._repr_html_()


def test_the_command_line(tmp_path):
    kernel = tmp_path / "fill.vyre"
    kernel.write_text(TEXT)
    assert "2, 2" in run("-m", "vyre", "run", str(kernel), "--set", "N=2").stdout.replace("\n", ", ")
    run("-m", "vyre", "check", str(kernel))
    assert "cpu" in run("-m", "vyre", "devices").stdout
    assert "nothing of this name" in run("-m", "vyre", "explain", "nothing of this name", code=2).stderr
    assert run("-m", "vyre", "--version").stdout == f"vyre {vyre.__version__}\n"


def test_the_benchmark():
    lines = run("-m", "vyre.bench", "--quick", "--rounds", "1", "sort").stdout.splitlines()
    assert len(lines) == 1 and "vyre" in lines[0] and "numpy" in lines[0]


def test_the_command_meets_drivers():
    """The helper process that opens unknown drivers works from Python as from the `vyre`
    program."""
    assert '"cpu"' in run("-m", "vyre", "conformance-helper", "cpu", stdin=subprocess.DEVNULL).stdout


def test_tables_are_saved_when_python_ends(tmp_path):
    script = SCRIPT + "x = np.ones(1000, np.float32)\nfor _ in range(300): add_one(x)\n"
    environment = {**os.environ, "VYRE_TABLES": str(tmp_path)}
    run("-c", script, env=environment)
    assert [file.name for file in tmp_path.iterdir() if "certificate" in file.name or "route" in file.name]
