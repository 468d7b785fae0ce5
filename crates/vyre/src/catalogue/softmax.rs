//! Softmax of rows: `y = exp(x - max) / Σ exp(x - max)` within each row.
//!
//! One workgroup per row. The sum has 32 strands as in [`reduce`](super::reduce): strand s adds columns s, s + 32, … in
//! that order, from zero, then strands are added in pairs. The greatest element passes over NaNs, but a NaN makes the
//! sum and so its row NaN. Bits are the same on every strict device.

use super::plan::{Plan, PlanError};
use super::reduce::{STRANDS, lanes};
use super::sample::{Agreement, Numbers, Sample, float_bytes, floats};
use super::template::{area, grid_of, instantiate};
use std::fmt::Write;
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
    let mut parts: [String; 9] = Default::default();
    let [greatest, find, find_rest, join_greatest, sums, add, add_rest, join_sums, divide] = &mut parts;
    for s in 0..each {
        let c = format!("c + {}", s * lanes);
        // Writing to a string cannot fail.
        let _ = writeln!(greatest, "let m{s} = -inf");
        let _ = writeln!(find, "m{s} = max(m{s}, x[{c}])");
        let _ = writeln!(find_rest, "if {c} < end {{ m{s} = max(m{s}, x[{c}]) }}");
        let _ = writeln!(sums, "let s{s} = 0.0");
        let _ = writeln!(add, "let e{s} = exp(x[{c}] - peak)\ny[{c}] = e{s}\ns{s} += e{s}");
        let _ = writeln!(
            add_rest,
            "if {c} < end {{ let e{s} = exp(x[{c}] - peak); y[{c}] = e{s}; s{s} += e{s} }}"
        );
        let _ = writeln!(divide, "y[{c}] = y[{c}] / total");
    }
    let mut half = each / 2;
    while half > 0 {
        for s in 0..half {
            let _ = writeln!(join_greatest, "m{s} = max(m{s}, m{})", s + half);
            let _ = writeln!(join_sums, "s{s} = s{s} + s{}", s + half);
        }
        half /= 2;
    }
    instantiate(
        SOFTMAX,
        &[
            ("$GREATEST", greatest),
            ("$FIND_REST", find_rest),
            ("$FIND", find),
            ("$JOIN_GREATEST", join_greatest),
            ("$SUMS", sums),
            ("$ADD_REST", add_rest),
            ("$ADD", add),
            ("$JOIN_SUMS", join_sums),
            ("$DIVIDE", divide),
            ("$ROWS", &rows.to_string()),
            ("$COLUMNS", &columns.to_string()),
            ("$WHOLE", &(columns / STRANDS).to_string()),
            ("$COUNT", &(rows * columns).to_string()),
            ("$LANES", &lanes.to_string()),
            ("$HALVES", &lanes.ilog2().to_string()),
            ("$HALF", &(lanes / 2).to_string()),
        ],
    )
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

/// One sample of [`rows`].
pub fn rows_sample(row_count: u32, columns: u32) -> Sample {
    let input = Numbers::new(13).floats(row_count * columns, -10.0, 10.0);
    let mut result = Vec::with_capacity(input.len() / 4);
    for row in floats(&input).chunks(columns.max(1) as usize) {
        let peak = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - f64::from(peak)).exp()).collect();
        let total: f64 = powers.iter().sum();
        result.extend(powers.iter().map(|power| (power / total) as f32));
    }
    Sample {
        label: format!("{row_count} by {columns}"),
        plan: Box::new(move |device| rows(row_count, columns, device)),
        inputs: vec![input],
        expected: vec![float_bytes(result)],
        agreement: Agreement::Within { absolute: 1e-12, relative: 1e-5 },
    }
}

pub(super) fn samples(length: u32) -> Vec<Sample> {
    vec![
        rows_sample(length.min(3), length),
        rows_sample(length.div_ceil(64), 64),
        rows_sample(length.div_ceil(33), 33),
    ]
}
