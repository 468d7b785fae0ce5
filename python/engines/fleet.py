"""Code that the tests' workers run: functions that pickle by name, and a worker that kills itself
once."""

import os
import signal
from pathlib import Path

from conftest import price


def die_once(folder, after):
    """Kills this process with SIGKILL on its call number `after`, once per folder: always mid-run,
    whatever the timing."""
    mine = Path(folder) / f"calls-{os.getpid()}"
    with mine.open("a") as calls:
        calls.write(".")
    if mine.stat().st_size != after:
        return
    try:
        os.close(os.open(Path(folder) / "killed", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def assert_killed(folder):
    assert (Path(folder) / "killed").exists(), "no worker was killed"
    assert len(list(Path(folder).glob("calls-*"))) >= 2, "one worker did it all"


class Priced:
    """An actor that holds a warm kernel."""

    def __init__(self, folder=None):
        self.function, self.folder = price().on_table("x", out="p"), folder

    def __call__(self, batch):
        if self.folder:
            die_once(self.folder, 3)
        return self.function(batch)


def priced_block(block, folder=None):
    if folder and block.size > 1:
        die_once(folder, 3)
    return price()(block)


def priced_frame(frame, folder=None):
    if folder and len(frame) > 1:
        die_once(folder, 3)
    return price().on_table("x", out="p")(frame)
