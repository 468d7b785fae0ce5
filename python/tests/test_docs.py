"""The examples in docs/python.md and the README run as shown."""

import linecache
import os
import re

import pytest

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")


@pytest.mark.parametrize("page", ["docs/python.md", "README.md"])
def test_examples(page):
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        blocks = re.findall(r"^```python\n(.*?)^```", file.read(), re.MULTILINE | re.DOTALL)
    assert blocks
    names = {"__name__": "example"}
    for number, block in enumerate(blocks):
        name = f"<{page} {number}>"
        linecache.cache[name] = (len(block), None, block.splitlines(keepends=True), name)
        exec(compile(block, name, "exec"), names)
