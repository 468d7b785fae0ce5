//! Softmax of rows: `y = exp(x - max) / Σ exp(x - max)` within each row.
//!
//! One workgroup per row. The sum has 32 strands as in [`reduce`](super::reduce): strand s adds columns s, s + 32, … in
//! that order, from zero, then strands are added in pairs. The greatest element passes over NaNs, but a NaN makes the
//! sum and so its row NaN. Bits are the same on every strict device.

use super::plan::{Plan, PlanError};
use super::reduce::{STRANDS, lanes};
use super::template::{area, grid_of, joins, kernel, lines};
use vyre_driver::DeviceProfile;
use vyre_foundation::ir::DataType;

/// Softmax of each of `rows` rows of `columns` elements.
pub fn rows(rows: u32, columns: u32, device: &DeviceProfile) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("softmax.rows");
    let count = area(plan.op, columns, rows)?;
    let x = plan.input("x", DataType::F32, count);
    let y = plan.output("y", DataType::F32, count);
    if count > 0 {
        plan.step_on(grid_of(rows, device), program(rows, columns, device), &[x, y]);
    }
    Ok(plan)
}

fn program(rows: u32, columns: u32, device: &DeviceProfile) -> vyre_foundation::ir::Program {
    let lanes = lanes(device);
    let each = STRANDS / lanes;
    let column = |s: u32| format!("c + {}", s * lanes);
    let greatest = lines(0..each, |s| format!("let m{s} = -inf"));
    let find = |s: u32| format!("m{s} = max(m{s}, x[{}])", column(s));
    let sums = lines(0..each, |s| format!("let s{s} = 0.0"));
    let add = |s: u32| format!("let e{s} = exp(x[{0}] - peak); y[{0}] = e{s}; s{s} += e{s}", column(s));
    let within = |s: u32, step: String| format!("if {} < end {{ {step} }}", column(s));
    kernel! { SOFTMAX;
        GREATEST: greatest, FIND_REST: lines(0..each, |s| within(s, find(s))), FIND: lines(0..each, find),
        JOIN_GREATEST: lines(joins(each), |(s, other)| format!("m{s} = max(m{s}, m{other})")),
        SUMS: sums, ADD_REST: lines(0..each, |s| within(s, add(s))), ADD: lines(0..each, add),
        JOIN_SUMS: lines(joins(each), |(s, other)| format!("s{s} = s{s} + s{other}")),
        DIVIDE: lines(0..each, |s| format!("y[{0}] = y[{0}] / total", column(s))),
        ROWS: rows, COLUMNS: columns, WHOLE: columns / STRANDS, COUNT: rows * columns,
        LANES: lanes, HALVES: lanes.ilog2(), HALF: lanes / 2,
    }
}

const SOFTMAX: &str = "
kernel \"softmax.rows\"(x: read f32[$COUNT], y: read_write f32[$COUNT], tile: workgroup f32[$LANES]) over $ROWS workgroup $LANES {
  region \"softmax.rows\" {
    let row = workgroup.y * grid_size.x + workgroup.x
    if row < $ROWS {
      let first = row * $COLUMNS
      let end = first + $COLUMNS
      $GREATEST
      for k in 0..$WHOLE {
        let c = first + k * 32 + local.x
        $FIND
      }
      if $COLUMNS % 32 > 0 {
        let c = first + $WHOLE * 32 + local.x
        $FIND_REST
      }
      $JOIN_GREATEST
      tile[local.x] = m0
      barrier
      for h in 0..$HALVES {
        let half = $HALFu32 >> h
        if local.x < half { tile[local.x] = max(tile[local.x], tile[local.x + half]) }
        barrier
      }
      let peak = tile[0]
      barrier
      $SUMS
      for k in 0..$WHOLE {
        let c = first + k * 32 + local.x
        $ADD
      }
      if $COLUMNS % 32 > 0 {
        let c = first + $WHOLE * 32 + local.x
        $ADD_REST
      }
      $JOIN_SUMS
      tile[local.x] = s0
      barrier
      for h in 0..$HALVES {
        let half = $HALFu32 >> h
        if local.x < half { tile[local.x] = tile[local.x] + tile[local.x + half] }
        barrier
      }
      let total = tile[0]
      for k in 0..$WHOLE {
        let c = first + k * 32 + local.x
        $DIVIDE
      }
      if $COLUMNS % 32 > 0 {
        for j in 0..32 / $LANES {
          let c = first + $WHOLE * 32 + j * $LANES + local.x
          if c < end { y[c] = y[c] / total }
        }
      }
    }
  }
}";
