"""Cost that the adapter adds to a call of the bare kernel, by batch size, without any engine."""

import statistics
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parent))

from bench import COPY  # noqa: E402

import vyre  # noqa: E402


def main():
    kernel = vyre.kernel(COPY)
    function = vyre.arrow(kernel)
    for size in (2048, 8192, 100_000):
        x = np.random.default_rng(1).random(size, np.float32)
        y = np.empty_like(x)
        calls = {
            "kernel": (kernel, (x, y)),
            "array": (function, (pa.array(x),)),
            "chunked": (function, (pa.chunked_array([x]),)),
            "nulls": (function, (pa.array(x, mask=x < 0.1),)),
            "numpy": (function, (x,)),
        }
        times = {name: [] for name in calls}
        for _ in range(300):
            for name, (call, arguments) in calls.items():
                start = time.perf_counter_ns()
                for _ in range(10):
                    call(*arguments)
                times[name].append((time.perf_counter_ns() - start) / 10)
        shown = ", ".join(f"{name} {statistics.median(all) / 1000:.2f} µs" for name, all in times.items())
        print(f"{size:>7}: {shown}")


if __name__ == "__main__":
    main()
