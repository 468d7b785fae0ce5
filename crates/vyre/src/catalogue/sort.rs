//! Sorting by 32-bit keys: a stable radix sort from the lowest digit to the highest.
//!
//! The input is cut into chunks, one per invocation. For each 8-bit digit, every invocation counts
//! the digits of its chunk; an exclusive scan of the counts, by digit and then by chunk, gives the
//! destination of each invocation's elements of each digit; every invocation walks its chunk again
//! and moves its elements there. Elements with equal keys keep their order. The result does not
//! depend on the number of chunks.

use super::plan::{Plan, PlanBufferId, PlanError};
use super::scan::add_offsets;
use super::text::{grid_of, kernel};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::{DataType, Program};

/// Interpretation of a key's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// `u32`.
    U32,
    /// `i32`.
    I32,
    /// `f32` in the total order of IEEE-754: -NaN, -infinity, … -0, +0, … infinity, NaN. Bits are
    /// preserved.
    F32,
}

impl Key {
    /// Every kind of key.
    pub const ALL: [Key; 3] = [Key::U32, Key::I32, Key::F32];

    /// The type of the keys' elements.
    pub fn element(self) -> DataType {
        match self {
            Key::U32 => DataType::U32,
            Key::I32 => DataType::I32,
            Key::F32 => DataType::F32,
        }
    }

    /// An expression that maps the bits `key` to a `u32` with the same order.
    fn ordered(self) -> &'static str {
        match self {
            Key::U32 => "key",
            Key::I32 => "key ^ 0x80000000",
            Key::F32 => "key ^ select(key >> 31 == 1, 0xffffffff, 0x80000000)",
        }
    }
}

/// Lanes of a workgroup. Each has its own 256 counters in workgroup memory, of which a device may
/// have only 16 KiB. Each lane also writes to 256 places by turns, and a core's nearest cache has
/// room for those of one lane.
fn lanes(device: &DeviceProfile) -> u32 {
    if device.device_class == DeviceClass::Cpu { 1 } else { 16 }
}

/// The number of chunks of an input, and their length.
fn chunks(length: u32, device: &DeviceProfile) -> (u32, u32) {
    let cpu = device.device_class == DeviceClass::Cpu;
    let most = if cpu { (device.compute_units.max(1) * 32).min(1024) } else { 2048 };
    let chunk = length.div_ceil(most).max(256);
    (length.div_ceil(chunk), chunk)
}

/// The keys in ascending order.
pub fn keys(key: Key, length: u32, device: &DeviceProfile) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("sort.keys");
    let input = plan.input("keys", key.element(), length);
    let output = plan.output("sorted", key.element(), length);
    add_passes(&mut plan, key, length, [[Some(input), None], [Some(output), None]], device);
    Ok(plan)
}

/// The keys in ascending order with their values, 32 bits each; equal keys keep their order.
pub fn pairs(key: Key, length: u32, device: &DeviceProfile) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("sort.pairs");
    let from_keys = plan.input("keys", key.element(), length);
    let from_values = plan.input("values", DataType::U32, length);
    let keys = plan.output("sorted keys", key.element(), length);
    let values = plan.output("sorted values", DataType::U32, length);
    let columns = [[Some(from_keys), Some(from_values)], [Some(keys), Some(values)]];
    add_passes(&mut plan, key, length, columns, device);
    Ok(plan)
}

/// Keys and, optionally, values.
type Columns = [Option<PlanBufferId>; 2];

fn add_passes(plan: &mut Plan, key: Key, length: u32, columns: [Columns; 2], device: &DeviceProfile) {
    if length == 0 {
        return;
    }
    let ([mut from, last], (count, chunk)) = (columns, chunks(length, device));
    let other: Columns =
        last.map(|column| column.map(|_| plan.temporary("half sorted", DataType::U32, length)));
    let counts = plan.temporary("counts", DataType::U32, 256 * count);
    let places = plan.temporary("places", DataType::U32, 256 * count);
    let chunk = plan.constant("chunk", &chunk.to_le_bytes());
    let with_values = from[1].is_some();
    let count_program = program(&(digit(key) + COUNT), device);
    let count_program = count_program.with_name(format!("sort.count.{}", key.element()));
    let move_program = program(&move_text(key, with_values), device);
    let grid = grid_of(count.div_ceil(lanes(device)), device);
    for pass in 0..4_u32 {
        let to = if pass % 2 == 0 { other } else { last };
        let shift = plan.constant("shift", &(8 * pass).to_le_bytes());
        let Some(keys) = from[0] else { unreachable!("there are always keys") };
        plan.step_on(grid, count_program.clone(), &[chunk, shift, keys, counts]);
        add_offsets(plan, 256 * count, [counts, places], device);
        let columns = from.into_iter().chain(to).flatten();
        let bindings: Vec<PlanBufferId> = [chunk, shift, places].into_iter().chain(columns).collect();
        plan.step_on(grid, move_program.clone(), &bindings);
        from = to;
    }
}

fn program(text: &str, device: &DeviceProfile) -> Program {
    let lanes = lanes(device);
    kernel! { text; CELLS: 256 * lanes, LANES: lanes, }
}

/// The function that extracts a key's digit.
fn digit(key: Key) -> String {
    format!("fn digit(key: u32, shift: u32) -> u32 {{ (({}) >> shift) & 255 }}", key.ordered())
}

/// A workgroup whose chunks are all full walks them without checking the length. A lane's counters
/// are its own; an atomic add reads and writes them in one step.
const COUNT: &str = "
kernel (
  chunk: u32 uniform, shift: u32 uniform, keys: read u32[], counts: read_write u32[], table: workgroup u32[CELLS],
) over counts workgroup LANES {
  region \"sort.count\" {
    let group = workgroup.y * grid_size.x + workgroup.x
    let chunks = len(counts) / 256
    let own = group * LANES + local.x
    let first = own * chunk
    let mine = local.x * 256
    for d in 0..256 { table[mine + d] = 0 }
    if group < len(keys) / chunk / LANES {
      for k in 0..chunk { atomic_add(table, mine + digit(keys[first + k], shift), 1) }
    } else {
      for k in 0..chunk {
        if own < chunks && first + k < len(keys) { atomic_add(table, mine + digit(keys[first + k], shift), 1) }
      }
    }
    if own < chunks {
      for d in 0..256 { counts[d * chunks + own] = table[mine + d] }
    }
  }
}";

fn move_text(key: Key, with_values: bool) -> String {
    let (digit, element) = (digit(key), key.element());
    let (name, columns, moved) = match with_values {
        true => (
            format!("{element}.pairs"),
            "keys: read u32[], values: read u32[], sorted: read_write u32[], moved: read_write u32[],",
            "moved[place] = values[i]",
        ),
        false => (element.to_string(), "keys: read u32[], sorted: read_write u32[],", ""),
    };
    format!(
        "{digit}
kernel \"sort.move.{name}\"(
  chunk: u32 uniform, shift: u32 uniform, places: read u32[], {columns} next: workgroup u32[CELLS],
) over sorted workgroup LANES {{
  region \"sort.move\" {{
    let group = workgroup.y * grid_size.x + workgroup.x
    let chunks = len(places) / 256
    let own = group * LANES + local.x
    let first = own * chunk
    let mine = local.x * 256
    for d in 0..256 {{ next[mine + d] = places[d * chunks + own] }}
    if group < len(keys) / chunk / LANES {{
      for k in 0..chunk {{
        let i = first + k
        let key = keys[i]
        let place = atomic_add(next, mine + digit(key, shift), 1)
        sorted[place] = key
        {moved}
      }}
    }} else {{
      for k in 0..chunk {{
        let i = first + k
        if own < chunks && i < len(keys) {{
          let key = keys[i]
          let place = atomic_add(next, mine + digit(key, shift), 1)
          sorted[place] = key
          {moved}
        }}
      }}
    }}
  }}
}}"
    )
}
