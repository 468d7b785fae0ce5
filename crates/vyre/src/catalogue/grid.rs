//! Ops on grids: transposition, stencils, convolution, the Mandelbrot set.
//!
//! Grids are row-major: element (x, y) is at `y * width + x`. The sides are part of the program, which is compiled once
//! per size: it lets every access be proved in range.

use super::plan::{Plan, PlanError};
use super::sample::{Agreement, Numbers, Sample, float_bytes, floats, stored, values, word_bytes};
use super::template::{area, instantiate};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::{DataType, Value};

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
    // The processor's vectors fill a row of the tile; a device's workgroup takes several rows at a time.
    let (side, rows) = if device.device_class == DeviceClass::Cpu { (32, 1) } else { (16, 16) };
    let across = [side, rows].map(|n: u32| n.to_string());
    let program = instantiate(
        TRANSPOSE,
        &[
            ("$WIDTH", &width.to_string()),
            ("$HEIGHT", &height.to_string()),
            ("$COUNT", &count.to_string()),
            ("$CELLS", &(side * side).to_string()),
            ("$DOMAIN_X", &width.next_multiple_of(side).to_string()),
            ("$DOMAIN_Y", &(height.div_ceil(side) * rows).to_string()),
            ("$SIDE", &across[0]),
            ("$ROWS", &across[1]),
            ("$T", element.name()),
        ],
    );
    plan.step(program, &[x, y]);
    Ok(plan)
}

const TRANSPOSE: &str = "
kernel \"transpose.$T\"(x: read $T[$COUNT], y: read_write $T[$COUNT], tile: workgroup $T[$CELLS])
over [$DOMAIN_X, $DOMAIN_Y] workgroup [$SIDE, $ROWS] {
  region \"transpose\" {
    let left = workgroup.x * $SIDE
    let top = workgroup.y * $SIDE
    if left + $SIDE <= $WIDTH && top + $SIDE <= $HEIGHT {
      for r in 0..$SIDE step $ROWS {
        let row = r + local.y
        tile[row * $SIDE + local.x] = x[(top + row) * $WIDTH + left + local.x]
      }
      barrier
      for r in 0..$SIDE step $ROWS {
        let row = r + local.y
        y[(left + row) * $HEIGHT + top + local.x] = tile[local.x * $SIDE + row]
      }
    } else {
      for r in 0..$SIDE step $ROWS {
        let row = r + local.y
        if left + local.x < $WIDTH && top + row < $HEIGHT {
          y[(left + local.x) * $HEIGHT + top + row] = x[(top + row) * $WIDTH + left + local.x]
        }
      }
    }
  }
}";

/// Sides of a grid of about so many elements, neither square nor a multiple of anything.
fn sides(length: u32) -> (u32, u32) {
    let width = length.isqrt() + u32::from(length.isqrt().pow(2) < length);
    (width, length.checked_div(width).unwrap_or(0))
}

pub(super) fn transpose_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    let sample = |element: DataType| {
        let input = Numbers::new(u64::from(length)).elements(element, width * height);
        let source = values(element, &input);
        let places = (0..width).flat_map(|c| (0..height).map(move |r| (r * width + c) as usize));
        let turned: Vec<Value> = places.filter_map(|place| source.get(place).copied()).collect();
        Sample {
            label: element.name().into(),
            plan: Box::new(move |device| transpose(element, width, height, device)),
            inputs: vec![input],
            expected: vec![stored(element, &turned)],
            agreement: Agreement::Bits,
        }
    };
    [DataType::F32, DataType::U32, DataType::F64].map(sample).into()
}

/// The three-point average `y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3`; the two ends are copied.
pub fn stencil(length: u32) -> Plan {
    let mut plan = Plan::new("stencil.1d");
    let x = plan.input("x", DataType::F32, length);
    let y = plan.output("y", DataType::F32, length);
    let program = instantiate(
        "kernel \"stencil.1d\"(x: read f32[], y: output f32[] len_of x) over y {
           region \"stencil.1d\" {
             let i = invocation.x
             let inside = i > 0 && i + 1 < len(x)
             let average = (x[i - 1] + x[i] + x[i + 1]) / 3.0
             y[i] = select(inside, average, x[i])
           }
         }",
        &[],
    );
    plan.step(program, &[x, y]);
    plan
}

pub(super) fn stencil_samples(length: u32) -> Vec<Sample> {
    let input = Numbers::new(u64::from(length)).floats(length, -1.0, 1.0);
    let x = floats(&input);
    let result = (0..x.len()).map(|i| match (i.checked_sub(1), x.get(i + 1)) {
        (Some(before), Some(after)) => (x[before] + x[i] + after) / 3.0,
        _ => x[i],
    });
    vec![Sample {
        label: "f32".into(),
        plan: Box::new(move |_| Ok(stencil(length))),
        expected: vec![float_bytes(result)],
        inputs: vec![input],
        agreement: Agreement::Bits,
    }]
}

/// One step of the five-point Jacobi iteration: inner elements become a quarter of the sum of their neighbours, taken
/// as ((left + right) + above) + below; the border is copied.
pub fn jacobi(width: u32, height: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("jacobi.2d");
    let count = area(plan.op, width, height)?;
    let x = plan.input("x", DataType::F32, count);
    let y = plan.output("y", DataType::F32, count);
    if count == 0 {
        return Ok(plan);
    }
    let [width_text, height_text, count] = [width, height, count].map(|n| n.to_string());
    let sides = [("$WIDTH", &*width_text), ("$HEIGHT", &height_text), ("$COUNT", &count)];
    if width > 2 && height > 2 {
        let [inner_width, inner_height] = [width - 2, height - 2].map(|n| n.to_string());
        let inner = [("$INNER_X", &*inner_width), ("$INNER_Y", &inner_height)];
        plan.step(instantiate(JACOBI, &[&inner[..], &sides].concat()), &[x, y]);
    }
    let around = (2 * (u64::from(width) + u64::from(height))).to_string();
    plan.step(instantiate(BORDER, &[&[("$AROUND", &*around)], &sides[..]].concat()), &[x, y]);
    Ok(plan)
}

const JACOBI: &str = "
kernel \"jacobi.2d\"(x: read f32[$COUNT], y: read_write f32[$COUNT]) over [$INNER_X, $INNER_Y] {
  region \"jacobi.2d\" {
    let i = (invocation.y + 1) * $WIDTH + invocation.x + 1
    y[i] = 0.25 * (x[i - 1] + x[i + 1] + x[i - $WIDTH] + x[i + $WIDTH])
  }
}";

/// Invocation numbers go along the top, the bottom, then both sides.
const BORDER: &str = "
kernel \"jacobi.border\"(x: read f32[$COUNT], y: read_write f32[$COUNT]) over $AROUND {
  region \"jacobi.border\" {
    let k = invocation.x
    let i = k
    if k >= $WIDTH { i = ($HEIGHT - 1) * $WIDTH + (k - $WIDTH) }
    if k >= 2 * $WIDTH { i = (k - 2 * $WIDTH) / 2 * $WIDTH + (k & 1) * ($WIDTH - 1) }
    let row = i / $WIDTH
    let corner = k >= 2 * $WIDTH && (row == 0 || row == $HEIGHT - 1)
    let again = $HEIGHT == 1 && k >= $WIDTH || $WIDTH == 1 && (k & 1) == 1 && k >= 2 * $WIDTH
    if !corner && !again { y[i] = x[i] }
  }
}";

/// One sample of [`jacobi`].
pub fn jacobi_sample(width: u32, height: u32) -> Sample {
    let (w, h) = (width as usize, height as usize);
    let input = Numbers::new(5).floats(width * height, -1.0, 1.0);
    let x = floats(&input);
    let mut y = x.clone();
    for row in 1..h.saturating_sub(1) {
        for column in 1..w.saturating_sub(1) {
            let i = row * w + column;
            y[i] = 0.25 * (x[i - 1] + x[i + 1] + x[i - w] + x[i + w]);
        }
    }
    Sample {
        label: format!("{width} by {height}"),
        plan: Box::new(move |_| jacobi(width, height)),
        inputs: vec![input],
        expected: vec![float_bytes(y)],
        agreement: Agreement::Bits,
    }
}

pub(super) fn jacobi_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    vec![jacobi_sample(width, height), jacobi_sample(length.min(1000), 1), jacobi_sample(1, length.min(1000))]
}

/// `y[i] = Σ_k w[k] * x[i + k - taps / 2]`, added from k = 0 up; elements outside `x` are zero.
pub fn convolve(taps: u32, length: u32) -> Result<Plan, PlanError> {
    const ID: &str = "convolve.1d";
    if taps == 0 || taps > 1024 {
        return Err(PlanError { op: ID, message: format!("{taps} taps; there can be 1 to 1024") });
    }
    let mut plan = Plan::new(ID);
    let x = plan.input("x", DataType::F32, length);
    let weights = plan.input("weights", DataType::F32, taps);
    let y = plan.output("y", DataType::F32, length);
    let program = instantiate(
        "kernel \"convolve.1d.$TAPS\"(x: read f32[], weights: read f32[$TAPS], y: output f32[] len_of x) over y {
           region \"convolve.1d\" {
             let sum = 0.0
             for k in 0..$TAPS { sum += weights[k] * x[invocation.x + k - $TAPS / 2] }
             y[invocation.x] = sum
           }
         }",
        &[("$TAPS", &taps.to_string())],
    );
    plan.step(program, &[x, weights, y]);
    Ok(plan)
}

pub(super) fn convolve_samples(length: u32) -> Vec<Sample> {
    let sample = |taps: u32| {
        let mut numbers = Numbers::new(u64::from(length));
        let (input, weights) = (numbers.floats(length, -1.0, 1.0), numbers.floats(taps, -1.0, 1.0));
        let (x, w) = (floats(&input), floats(&weights));
        let tap = |i: usize, k: usize| (i + k).checked_sub(w.len() / 2).and_then(|at| x.get(at).copied());
        let result =
            (0..x.len()).map(|i| (0..w.len()).fold(0.0_f32, |sum, k| sum + w[k] * tap(i, k).unwrap_or(0.0)));
        let expected = float_bytes(result);
        Sample {
            label: format!("{taps} taps"),
            plan: Box::new(move |_| convolve(taps, length)),
            inputs: vec![input, weights],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    [1, 5, 8].map(sample).into()
}

/// `y(c, r) = Σ_j Σ_i w(i, j) * x(c + i - columns / 2, r + j - rows / 2)`, added row by row; elements outside are zero.
pub fn convolve_grid(width: u32, height: u32, columns: u32, rows: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("convolve.2d");
    let count = area(plan.op, width, height)?;
    let taps = area(plan.op, columns, rows)?;
    if taps == 0 || taps > 1024 {
        let message = format!("{columns} by {rows} weights; there can be 1 to 1024");
        return Err(PlanError { op: plan.op, message });
    }
    let x = plan.input("x", DataType::F32, count);
    let weights = plan.input("weights", DataType::F32, taps);
    let y = plan.output("y", DataType::F32, count);
    if count > 0 {
        let program = instantiate(
            CONVOLVE_GRID,
            &[
                ("$WIDTH", &width.to_string()),
                ("$HEIGHT", &height.to_string()),
                ("$COUNT", &count.to_string()),
                ("$COLUMNS", &columns.to_string()),
                ("$ROWS", &rows.to_string()),
                ("$TAPS", &taps.to_string()),
            ],
        );
        plan.step(program, &[x, weights, y]);
    }
    Ok(plan)
}

/// Indices left of or above the grid wrap to large ones, so one comparison finds them.
const CONVOLVE_GRID: &str = "
kernel \"convolve.2d.$COLUMNS.$ROWS\"(x: read f32[$COUNT], weights: read f32[$TAPS], y: read_write f32[$COUNT])
over [$WIDTH, $HEIGHT] {
  region \"convolve.2d\" {
    let sum = 0.0
    for j in 0..$ROWS {
      let row = invocation.y + j - $ROWS / 2
      for i in 0..$COLUMNS {
        let column = invocation.x + i - $COLUMNS / 2
        let value = select(row < $HEIGHT && column < $WIDTH, x[row * $WIDTH + column], 0.0)
        sum += weights[j * $COLUMNS + i] * value
      }
    }
    y[invocation.y * $WIDTH + invocation.x] = sum
  }
}";

pub(super) fn convolve_grid_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    let sample = |(columns, rows): (u32, u32)| {
        let mut numbers = Numbers::new(u64::from(length));
        let input = numbers.floats(width * height, -1.0, 1.0);
        let weights = numbers.floats(columns * rows, -1.0, 1.0);
        let (x, w) = (floats(&input), floats(&weights));
        let at = |column: i64, row: i64| {
            let inside = (0..i64::from(width)).contains(&column) && (0..i64::from(height)).contains(&row);
            if inside { x[(row * i64::from(width) + column) as usize] } else { 0.0 }
        };
        let mut result = Vec::with_capacity(x.len());
        for row in 0..i64::from(height) {
            for column in 0..i64::from(width) {
                let mut sum = 0.0;
                for j in 0..i64::from(rows) {
                    for i in 0..i64::from(columns) {
                        let weight = w[(j * i64::from(columns) + i) as usize];
                        sum +=
                            weight * at(column + i - i64::from(columns / 2), row + j - i64::from(rows / 2));
                    }
                }
                result.push(sum);
            }
        }
        let expected = float_bytes(result);
        Sample {
            label: format!("{columns} by {rows}"),
            plan: Box::new(move |_| convolve_grid(width, height, columns, rows)),
            inputs: vec![input, weights],
            expected: vec![expected],
            agreement: Agreement::Bits,
        }
    };
    [(3, 3), (2, 5)].map(sample).into()
}

/// How many of `iterations` rounds of z² + c each point of the rectangle from -2.25 - 1.25 i to
/// 0.75 + 1.25 i stays within |z| ≤ 2.
pub fn mandelbrot(width: u32, height: u32, iterations: u32) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("mandelbrot");
    let count = area(plan.op, width, height)?;
    let rounds = plan.output("rounds", DataType::U32, count);
    if count > 0 {
        let program = instantiate(
            MANDELBROT,
            &[
                ("$WIDTH", &width.to_string()),
                ("$HEIGHT", &height.to_string()),
                ("$COUNT", &count.to_string()),
                ("$ITERATIONS", &iterations.to_string()),
            ],
        );
        plan.step(program, &[rounds]);
    }
    Ok(plan)
}

const MANDELBROT: &str = "
kernel \"mandelbrot\"(rounds: read_write u32[$COUNT]) over [$WIDTH, $HEIGHT] {
  region \"mandelbrot\" {
    let cx = f32(invocation.x) / f32($WIDTH) * 3.0 - 2.25
    let cy = f32(invocation.y) / f32($HEIGHT) * 2.5 - 1.25
    let x = 0.0
    let y = 0.0
    let n = 0
    while n < $ITERATIONS {
      let xx = x * x
      let yy = y * y
      if !(xx + yy <= 4.0) { break }
      y = 2.0 * x * y + cy
      x = xx - yy + cx
      n += 1
    }
    rounds[invocation.y * $WIDTH + invocation.x] = n
  }
}";

/// One sample of [`mandelbrot`].
pub fn mandelbrot_sample(width: u32, height: u32, iterations: u32) -> Sample {
    let point = |column: u32, row: u32| {
        let cx = column as f32 / width as f32 * 3.0 - 2.25;
        let cy = row as f32 / height as f32 * 2.5 - 1.25;
        let (mut x, mut y, mut n) = (0.0_f32, 0.0_f32, 0);
        while n < iterations && x * x + y * y <= 4.0 {
            let (xx, yy) = (x * x, y * y);
            y = 2.0 * x * y + cy;
            x = xx - yy + cx;
            n += 1;
        }
        n
    };
    Sample {
        label: format!("{width} by {height}"),
        plan: Box::new(move |_| mandelbrot(width, height, iterations)),
        inputs: Vec::new(),
        expected: vec![word_bytes((0..height).flat_map(|row| (0..width).map(move |c| point(c, row))))],
        agreement: Agreement::Bits,
    }
}

pub(super) fn mandelbrot_samples(length: u32) -> Vec<Sample> {
    let (width, height) = sides(length);
    vec![mandelbrot_sample(width, height, 50)]
}
