"""A kernel in Python: pip install . && python examples/blur.py"""

import numpy as np

import vyre
from vyre import In, Out, f32, i32, invocation


@vyre.kernel
def blur(x: In[f32], y: Out[f32, "x"]):
    i = i32(invocation.x)
    acc = 0.0
    for d in range(-1, 2):
        acc += x[i + d]
    y[i] = acc / 3.0


x = np.zeros(9, np.float32)
x[4] = 3.0
y, report = blur.run(x)
print(y)
print(report)
