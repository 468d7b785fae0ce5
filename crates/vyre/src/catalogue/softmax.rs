//! Softmax of rows: `y = exp(x - max) / Σ exp(x - max)` within each row.
//!
//! One workgroup per row. The sum has 32 strands as in [`reduce`](super::reduce): strand s adds
//! columns s, s + 32, … in that order, from zero, then strands are added in pairs. The maximum
//! ignores NaNs, but a NaN makes the sum, and so its row, NaN. The bits are the same on every
//! strict device.

use super::plan::{Plan, PlanError};
use super::reduce::{STRANDS, join, lanes};
use super::text::{area, grid_of, kernel, lines};
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
    kernel! { &text(lanes);
        ROWS: rows, COLUMNS: columns, WHOLE: columns / STRANDS, COUNT: rows * columns,
        LANES: lanes, HALVES: lanes.ilog2(), HALF: lanes / 2,
    }
}

fn text(lanes: u32) -> String {
    let each = STRANDS / lanes;
    let column = |s: u32| format!("c + {}", s * lanes);
    // Applies a step to every element of a row: in whole rounds, then to the remaining ones.
    let along = |step: &dyn Fn(u32) -> String| {
        let steps = lines(0..each, step);
        let rest = lines(0..each, |s| format!("if {} < end {{ {} }}", column(s), step(s)));
        format!(
            "
      for k in 0..WHOLE {{
        let c = first + k * 32 + local.x
        {steps}
      }}
      if COLUMNS % 32 > 0 {{
        let c = first + WHOLE * 32 + local.x
        {rest}
      }}"
        )
    };
    let greatest = lines(0..each, |s| format!("let m{s} = -inf"));
    let find = along(&|s| format!("m{s} = max(m{s}, x[{}])", column(s)));
    let peak = join(each, "m", "max");
    let sums = lines(0..each, |s| format!("let s{s} = 0.0"));
    let add = along(&|s| format!("let e{s} = exp(x[{0}] - peak); y[{0}] = e{s}; s{s} += e{s}", column(s)));
    let total = join(each, "s", "add");
    let divide = along(&|s| format!("y[{0}] = y[{0}] / total", column(s)));
    format!(
        "
kernel \"softmax.rows\"(x: read f32[COUNT], y: read_write f32[COUNT], tile: workgroup f32[LANES]) over ROWS workgroup LANES {{
  region \"softmax.rows\" {{
    let row = workgroup.y * grid_size.x + workgroup.x
    if row < ROWS {{
      let first = row * COLUMNS
      let end = first + COLUMNS
      {greatest}
      {find}
      {peak}
      let peak = tile[0]
      barrier
      {sums}
      {add}
      {total}
      let total = tile[0]
      {divide}
    }}
  }}
}}"
    )
}
