import numpy as np
import vyre
from vyre import In, InOut, Out, Shared, f32, i32, u32, invocation, local, barrier, atomic_add

@vyre.kernel
def blur(x: In[f32], y: Out[f32, "x"]) -> None:
    i = i32(invocation.x)
    acc = 0.0
    for d in range(-1, 2):
        acc += x[i + d]
    y[i] = acc / 3.0

@vyre.elementwise
def gain(x: f32, g: f32) -> f32:
    return pow(max(x, 0.0), 1.0 / g)

@vyre.func
def square(x: f32) -> f32:
    return x * x

y = blur(np.ones(3, np.float32))
z, report = blur.run(y, on="cpu", timeout=0.1)
print(report.backend, vyre.sum(y), blur.explain(3))
r = vyre.resident(y)
