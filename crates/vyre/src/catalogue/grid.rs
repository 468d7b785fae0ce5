//! Ops on grids: transposition, stencils, convolution, the Mandelbrot set.
//!
//! Grids are row-major: element (x, y) is at `y * width + x`. The sides are part of the program,
//! which is compiled once per size, so that every access can be proved in range.

use super::plan::{Plan, PlanError};
use super::text::{area, kernel};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::DataType;

/// `y` is `x` with rows and columns exchanged: `y[c * height + r] = x[r * width + c]`.
pub fn transpose(
    element: DataType,
    width: u32,
    height: u32,
    device: &DeviceProfile,
) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("transpose");
    let count = area(plan.op, width, height)?;
    let x = plan.input("x", element, count);
    let y = plan.output("y", element, count);
    if count == 0 {
        return Ok(plan);
    }
    // The processor's vectors fill a row of the tile; a device's workgroup takes several rows at a
    // time.
    let (side, rows) = if device.device_class == DeviceClass::Cpu { (32_u32, 1) } else { (16, 16) };
    let buffers =
        format!("x: read {element}[COUNT], y: read_write {element}[COUNT], tile: workgroup {element}[CELLS]");
    let program = kernel! { &format!("kernel \"transpose.{element}\"({buffers}) {TRANSPOSE}");
        WIDTH: width, HEIGHT: height, COUNT: count, CELLS: side * side, DOMAIN_X: width.next_multiple_of(side),
        DOMAIN_Y: height.div_ceil(side) * rows, SIDE: side, ROWS: rows,
    };
    plan.step(program, &[x, y]);
    Ok(plan)
}

const TRANSPOSE: &str = "
over [DOMAIN_X, DOMAIN_Y] workgroup [SIDE, ROWS] {
  region \"transpose\" {
    let left = workgroup.x * SIDE
    let top = workgroup.y * SIDE
    if left + SIDE <= WIDTH && top + SIDE <= HEIGHT {
      for r in 0..SIDE step ROWS {
        let row = r + local.y
        tile[row * SIDE + local.x] = x[(top + row) * WIDTH + left + local.x]
      }
      barrier
      for r in 0..SIDE step ROWS {
        let row = r + local.y
        y[(left + row) * HEIGHT + top + local.x] = tile[local.x * SIDE + row]
      }
    } else {
      for r in 0..SIDE step ROWS {
        let row = r + local.y
        if left + local.x < WIDTH && top + row < HEIGHT {
          y[(left + local.x) * HEIGHT + top + row] = x[(top + row) * WIDTH + left + local.x]
        }
      }
    }
  }
}";

/// The three-point average `y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3`; the two ends are copied.
pub fn stencil(length: u32) -> Plan {
    let program = kernel! {
        "kernel \"stencil.1d\"(x: read f32[], y: output f32[] len_of x) over y {
           region \"stencil.1d\" {
             let i = invocation.x
             let inside = i > 0 && i + 1 < len(x)
             let average = (x[i - 1] + x[i] + x[i + 1]) / 3.0
             y[i] = select(inside, average, x[i])
           }
         }";
    };
    Plan::of("stencil.1d", program, &[length; 2], &[])
}

/// One step of the five-point Jacobi iteration: inner elements become a quarter of the sum of their
/// neighbours, taken as ((left + right) + above) + below; the border is copied.
pub fn jacobi(width: u32, height: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("jacobi.2d");
    let count = area(plan.op, width, height)?;
    let x = plan.input("x", DataType::F32, count);
    let y = plan.output("y", DataType::F32, count);
    if count == 0 {
        return Ok(plan);
    }
    if width > 2 && height > 2 {
        let inner = kernel! { JACOBI; INNER_X: width - 2, INNER_Y: height - 2, WIDTH: width, COUNT: count, };
        plan.step(inner, &[x, y]);
    }
    let around = u32::try_from(2 * (u64::from(width) + u64::from(height)));
    let around =
        around.map_err(|_| PlanError::new(plan.op, format!("{width} by {height} is too long a border")))?;
    let border = kernel! { BORDER; AROUND: around, WIDTH: width, HEIGHT: height, COUNT: count, };
    plan.step(border, &[x, y]);
    Ok(plan)
}

const JACOBI: &str = "
kernel \"jacobi.2d\"(x: read f32[COUNT], y: read_write f32[COUNT]) over [INNER_X, INNER_Y] {
  region \"jacobi.2d\" {
    let i = (invocation.y + 1) * WIDTH + invocation.x + 1
    y[i] = 0.25 * (x[i - 1] + x[i + 1] + x[i - WIDTH] + x[i + WIDTH])
  }
}";

/// Invocations are numbered along the top, the bottom, then both sides.
const BORDER: &str = "
kernel \"jacobi.border\"(x: read f32[COUNT], y: read_write f32[COUNT]) over AROUND {
  region \"jacobi.border\" {
    let k = invocation.x
    let i = k
    if k >= WIDTH { i = (HEIGHT - 1) * WIDTH + (k - WIDTH) }
    if k >= 2 * WIDTH { i = (k - 2 * WIDTH) / 2 * WIDTH + (k & 1) * (WIDTH - 1) }
    let row = i / WIDTH
    let corner = k >= 2 * WIDTH && (row == 0 || row == HEIGHT - 1)
    let again = HEIGHT == 1 && k >= WIDTH || WIDTH == 1 && (k & 1) == 1 && k >= 2 * WIDTH
    if !corner && !again { y[i] = x[i] }
  }
}";

/// `y[i] = Σ_k w[k] * x[i + k - taps / 2]`, added from k = 0 up; elements outside `x` are zero.
pub fn convolve(taps: u32, length: u32) -> Result<Plan, PlanError> {
    const ID: &str = "convolve.1d";
    if taps == 0 || taps > 1024 {
        return Err(PlanError::new(ID, format!("{taps} taps; there can be 1 to 1024")));
    }
    let program = kernel! {
        "kernel (x: read f32[], weights: read f32[TAPS], y: output f32[] len_of x) over y {
           region \"convolve.1d\" {
             let sum = 0.0
             for k in 0..TAPS { sum += weights[k] * x[invocation.x + k - TAPS / 2] }
             y[invocation.x] = sum
           }
         }"; TAPS: taps,
    };
    let program = program.with_name(format!("convolve.1d.{taps}"));
    Ok(Plan::of(ID, program, &[length, taps, length], &[]))
}

/// `y(c, r) = Σ_j Σ_i w(i, j) * x(c + i - columns / 2, r + j - rows / 2)`, added row by row;
/// elements outside are zero.
pub fn convolve_grid(width: u32, height: u32, columns: u32, rows: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("convolve.2d");
    let count = area(plan.op, width, height)?;
    let taps = area(plan.op, columns, rows)?;
    if taps == 0 || taps > 1024 {
        let message = format!("{columns} by {rows} weights; there can be 1 to 1024");
        return Err(PlanError::new(plan.op, message));
    }
    let x = plan.input("x", DataType::F32, count);
    let weights = plan.input("weights", DataType::F32, taps);
    let y = plan.output("y", DataType::F32, count);
    if count > 0 {
        let program = kernel! { CONVOLVE_GRID;
            WIDTH: width, HEIGHT: height, COUNT: count, COLUMNS: columns, ROWS: rows, TAPS: taps,
        };
        plan.step(program.with_name(format!("convolve.2d.{columns}.{rows}")), &[x, weights, y]);
    }
    Ok(plan)
}

/// Indices left of or above the grid wrap to large ones, so one comparison catches them.
const CONVOLVE_GRID: &str = "
kernel (x: read f32[COUNT], weights: read f32[TAPS], y: read_write f32[COUNT])
over [WIDTH, HEIGHT] {
  region \"convolve.2d\" {
    let sum = 0.0
    for j in 0..ROWS {
      let row = invocation.y + j - ROWS / 2
      for i in 0..COLUMNS {
        let column = invocation.x + i - COLUMNS / 2
        let value = select(row < HEIGHT && column < WIDTH, x[row * WIDTH + column], 0.0)
        sum += weights[j * COLUMNS + i] * value
      }
    }
    y[invocation.y * WIDTH + invocation.x] = sum
  }
}";

/// How many of `iterations` rounds of z² + c each point of the rectangle from -2.25 - 1.25 i to
/// 0.75 + 1.25 i stays within |z| ≤ 2.
pub fn mandelbrot(width: u32, height: u32, iterations: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("mandelbrot");
    let count = area(plan.op, width, height)?;
    let rounds = plan.output("rounds", DataType::U32, count);
    if count > 0 {
        let program =
            kernel! { MANDELBROT; WIDTH: width, HEIGHT: height, COUNT: count, ITERATIONS: iterations, };
        plan.step(program, &[rounds]);
    }
    Ok(plan)
}

const MANDELBROT: &str = "
kernel \"mandelbrot\"(rounds: read_write u32[COUNT]) over [WIDTH, HEIGHT] {
  region \"mandelbrot\" {
    let cx = f32(invocation.x) / f32(WIDTH) * 3.0 - 2.25
    let cy = f32(invocation.y) / f32(HEIGHT) * 2.5 - 1.25
    let x = 0.0
    let y = 0.0
    let n = 0
    while n < ITERATIONS {
      let xx = x * x
      let yy = y * y
      if !(xx + yy <= 4.0) { break }
      y = 2.0 * x * y + cy
      x = xx - yy + cx
      n += 1
    }
    rounds[invocation.y * WIDTH + invocation.x] = n
  }
}";
