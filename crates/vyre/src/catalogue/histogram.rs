//! Histograms of small values.
//!
//! Every workgroup counts a stretch of the input in workgroup memory, in several tables so that
//! equal neighbours do not contend, and writes its counts; a second program adds the workgroups'
//! counts. Counts are integers, so the order does not matter.

use super::plan::{Plan, PlanError};
use super::text::{grid_of, kernel};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::DataType;

/// Maximum number of bins: their tables are in workgroup memory. A workgroup on a GPU has one table
/// of this size, or four of 256 bins, which take 4 KiB of the 16 KiB that WebGPU guarantees.
pub const MOST_BINS: u32 = 1024;

/// Counts of the values 0 to `bins - 1` among unsigned elements; others are ignored.
pub fn histogram(
    element: DataType,
    bins: u32,
    length: u32,
    device: &DeviceProfile,
) -> Result<Plan, PlanError> {
    const ID: &str = "histogram";
    if !matches!(element, DataType::U8 | DataType::U16 | DataType::U32) {
        return Err(PlanError::new(ID, format!("{} is not u8, u16 or u32", element.name())));
    }
    if bins == 0 || bins > MOST_BINS {
        return Err(PlanError::new(ID, format!("{bins} bins; there can be 1 to {MOST_BINS}")));
    }
    // Lanes of a workgroup, the tables they count in (lane l in table l modulo their number), and
    // the elements that a workgroup counts.
    let (lanes, tables, stretch) = match (device.device_class, bins) {
        (DeviceClass::Cpu, _) => (8, 8, 1 << 16),
        (_, ..=256) => (64, 4, 1 << 14),
        (_, 257..) => (64, 1, 1 << 14),
    };
    let groups = length.div_ceil(stretch).max(1);
    let program = |text: &str| {
        kernel! { text;
            CELLS: bins * tables, STRETCH: stretch, LANES: lanes, ROUNDS: stretch / lanes, TABLES: tables, BINS: bins,
        }
    };
    let mut plan = Plan::new(ID);
    let x = plan.input("x", element, length);
    let counts = plan.output("counts", DataType::U32, bins);
    let split = || PlanError::new(ID, format!("{bins} bins for {length} elements; split the input"));
    let table_length = groups.checked_mul(bins).ok_or_else(split)?;
    let partial = plan.temporary("partial", DataType::U32, table_length);
    plan.step_on(grid_of(groups, device), program(&count_text(element, bins)), &[x, partial]);
    plan.step(program(MERGE).with_name(format!("histogram.merge.{bins}")), &[partial, counts]);
    Ok(plan)
}

fn count_text(element: DataType, bins: u32) -> String {
    // With 256 bins, every u8 has one.
    let counted = match element == DataType::U8 && bins >= 256 {
        true => "atomic_add(tables, table + value, 1)",
        false => "if value < BINS { atomic_add(tables, table + value, 1) }",
    };
    format!(
        "
kernel \"histogram.count.{element}.{bins}\"(
  x: read {element}[], partial: read_write u32[], tables: workgroup u32[CELLS],
) over partial workgroup LANES {{
  region \"histogram.count\" {{
    let group = workgroup.y * grid_size.x + workgroup.x
    if group < len(partial) / BINS {{
      let first = group * STRETCH
      let table = local.x % TABLES * BINS
      for c in 0..(CELLS + (LANES - 1)) / LANES {{
        let cell = c * LANES + local.x
        if cell < CELLS {{ tables[cell] = 0 }}
      }}
      barrier
      if len(x) - first >= STRETCH {{
        for k in 0..ROUNDS {{
          let value = x[first + k * LANES + local.x]
          {counted}
        }}
      }} else {{
        for k in 0..ROUNDS {{
          let i = first + k * LANES + local.x
          let value = x[i]
          if i < len(x) {{ {counted} }}
        }}
      }}
      barrier
      for c in 0..(BINS + (LANES - 1)) / LANES {{
        let bin = c * LANES + local.x
        if bin < BINS {{
          let count = 0
          for t in 0..TABLES {{ count += tables[t * BINS + bin] }}
          partial[group * BINS + bin] = count
        }}
      }}
    }}
  }}
}}"
    )
}

const MERGE: &str = "
kernel (partial: read u32[], counts: output u32[BINS]) over counts {
  region \"histogram.merge\" {
    let count = 0
    for group in 0..len(partial) / BINS { count += partial[group * BINS + invocation.x] }
    counts[invocation.x] = count
  }
}";
