//! How often each small value occurs.
//!
//! Every workgroup counts a stretch of the input in workgroup memory, in several tables so that equal neighbours do not
//! wait for each other, and writes its counts; a second program adds the workgroups' counts. No order shows: counts
//! are integers.

use super::plan::{Plan, PlanError};
use super::sample::{Agreement, Numbers, Sample, values, word_bytes};
use super::template::{grid_of, instantiate};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::DataType;

/// The most bins there can be: their tables are in workgroup memory.
pub const MOST_BINS: u32 = 1024;

/// Counts of the values 0 to `bins - 1` among unsigned elements; others are not counted.
pub fn histogram(
    element: DataType,
    bins: u32,
    length: u32,
    device: &DeviceProfile,
) -> Result<Plan, PlanError> {
    const ID: &str = "histogram";
    if !matches!(element, DataType::U8 | DataType::U16 | DataType::U32) {
        let message = format!("{} is not u8, u16 or u32", element.name());
        return Err(PlanError { op: ID, message });
    }
    if bins == 0 || bins > MOST_BINS {
        return Err(PlanError { op: ID, message: format!("{bins} bins; there can be 1 to {MOST_BINS}") });
    }
    let Shape { lanes, tables, stretch } = shape(bins, device);
    let count = "atomic_add(tables, table + value, 1)";
    // Every u8 has one of 256 bins.
    let counted = match element == DataType::U8 && bins >= 256 {
        true => count.to_string(),
        false => format!("if value < $BINS {{ {count} }}"),
    };
    let groups = length.div_ceil(stretch).max(1);
    let values: [(&str, String); 8] = [
        ("$COUNTED", counted),
        ("$CELLS", (bins * tables).to_string()),
        ("$STRETCH", stretch.to_string()),
        ("$LANES", lanes.to_string()),
        ("$ROUNDS", (stretch / lanes).to_string()),
        ("$TABLES", tables.to_string()),
        ("$BINS", bins.to_string()),
        ("$T", element.name().to_string()),
    ];
    let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
    let mut plan = Plan::new(ID);
    let x = plan.input("x", element, length);
    let counts = plan.output("counts", DataType::U32, bins);
    let table_length = groups.checked_mul(bins).ok_or_else(|| PlanError {
        op: ID,
        message: format!("{bins} bins for {length} elements; split the input"),
    })?;
    let partial = plan.temporary("partial", DataType::U32, table_length);
    plan.step_on(grid_of(groups, device), instantiate(COUNT, &values), &[x, partial]);
    plan.step(instantiate(MERGE, &values), &[partial, counts]);
    Ok(plan)
}

struct Shape {
    /// Lanes of a workgroup.
    lanes: u32,
    /// Tables that they count in: lane l in table l modulo their number.
    tables: u32,
    /// Elements that a workgroup counts.
    stretch: u32,
}

fn shape(bins: u32, device: &DeviceProfile) -> Shape {
    match device.device_class {
        DeviceClass::Cpu => Shape { lanes: 8, tables: 8, stretch: 1 << 16 },
        DeviceClass::Unknown | DeviceClass::Discrete | DeviceClass::Integrated | DeviceClass::Software => {
            Shape { lanes: 64, tables: if bins <= 256 { 4 } else { 1 }, stretch: 1 << 14 }
        }
    }
}

const COUNT: &str = "
kernel \"histogram.count.$T.$BINS\"(
  x: read $T[], partial: read_write u32[], tables: workgroup u32[$CELLS],
) over partial workgroup $LANES {
  region \"histogram.count\" {
    let group = workgroup.y * grid_size.x + workgroup.x
    if group < len(partial) / $BINS {
      let first = group * $STRETCH
      let table = local.x % $TABLES * $BINS
      for c in 0..($CELLS + ($LANES - 1)) / $LANES {
        let cell = c * $LANES + local.x
        if cell < $CELLS { tables[cell] = 0 }
      }
      barrier
      if len(x) - first >= $STRETCH {
        for k in 0..$ROUNDS {
          let value = x[first + k * $LANES + local.x]
          $COUNTED
        }
      } else {
        for k in 0..$ROUNDS {
          let i = first + k * $LANES + local.x
          let value = x[i]
          if i < len(x) { $COUNTED }
        }
      }
      barrier
      for c in 0..($BINS + ($LANES - 1)) / $LANES {
        let bin = c * $LANES + local.x
        if bin < $BINS {
          let count = 0
          for t in 0..$TABLES { count += tables[t * $BINS + bin] }
          partial[group * $BINS + bin] = count
        }
      }
    }
  }
}";

const MERGE: &str = "
kernel \"histogram.merge.$BINS\"(partial: read u32[], counts: output u32[$BINS]) over counts {
  region \"histogram.merge\" {
    let count = 0
    for group in 0..len(partial) / $BINS { count += partial[group * $BINS + invocation.x] }
    counts[invocation.x] = count
  }
}";

/// One sample of [`histogram`].
pub fn histogram_sample(element: DataType, bins: u32, length: u32) -> Sample {
    let mut input = Numbers::new(u64::from(length)).elements(element, length);
    if element != DataType::U8 {
        // Most values in range, some not.
        for slot in input.chunks_exact_mut(element.size()) {
            slot[1] &= 3;
            slot[2 % element.size()..].fill(0);
        }
    }
    let mut counts = vec![0_u32; bins as usize];
    for value in values(element, &input).into_iter().filter_map(|value| value.as_u32()) {
        if let Some(count) = counts.get_mut(value as usize) {
            *count += 1;
        }
    }
    Sample {
        label: format!("{} in {bins}", element.name()),
        plan: Box::new(move |device| histogram(element, bins, length, device)),
        inputs: vec![input],
        expected: vec![word_bytes(counts)],
        agreement: Agreement::Bits,
    }
}

pub(super) fn samples(length: u32) -> Vec<Sample> {
    let cases = [(DataType::U8, 256), (DataType::U32, 256), (DataType::U16, 1000), (DataType::U8, 3)];
    cases.map(|(element, bins)| histogram_sample(element, bins, length)).into()
}
