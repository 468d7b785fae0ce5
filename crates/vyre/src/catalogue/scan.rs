//! Running sums, and compaction, which builds on them.
//!
//! A scan has up to three parts: the sum of every block, the exclusive scan of those sums (itself
//! in several parts, if there are many), and the scan of every block from its offset. A single
//! block needs only the last part.
//!
//! **Order of float sums.** The same on every device. Blocks have 1024 elements, cut into 64 chunks
//! of 16. In a chunk, elements are added one after another, from zero. The offset of a chunk is the
//! block's offset plus the chunks before it, one after another. An element's result is its chunk's
//! offset plus its sum within the chunk. The sum of a block is that of [`reduce`](super::reduce)
//! with blocks of 1024; the blocks' offsets are an exclusive scan of those. Integer sums wrap, so
//! their order does not matter, and the processor's lanes scan across them.

use super::plan::{Plan, PlanBufferId, PlanError};
use super::reduce::{Level, blocks, element_at};
use super::text::{grid_of, kernel, number, widened};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::{Combine, DataType, Program, Value};

/// Whether an element is part of its own running sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanKind {
    /// It is: `y[i] = x[0] + … + x[i]`.
    Inclusive,
    /// It is not: `y[i] = x[0] + … + x[i - 1]`, and `y[0] = 0`.
    Exclusive,
}

impl ScanKind {
    fn op(self) -> &'static str {
        match self {
            ScanKind::Inclusive => "scan.inclusive",
            ScanKind::Exclusive => "scan.exclusive",
        }
    }
}

/// Block size where lanes scan across, which works at any size since the order of such sums does
/// not matter: that of a reduction's block. Where lanes scan chunks in workgroup memory, 64 lanes
/// have chunks of 16: 8 KiB of 64-bit elements, of the 16 KiB that WebGPU guarantees. These two
/// decide the order of float sums, so that changing them changes results.
const LONG_BLOCK: u32 = 8192;
const TILE_LANES: u32 = 64;
const TILE_CHUNK: u32 = 16;
const TILE_BLOCK: u32 = TILE_LANES * TILE_CHUNK;

/// Whether the lanes of a vector scan across: the order of sums must not matter, and a workgroup
/// must be one vector.
fn across(element: DataType, device: &DeviceProfile) -> bool {
    element.value_type().is_integer()
        && device.device_class == DeviceClass::Cpu
        && device.supports_subgroup_ops
        && device.subgroup_size.is_power_of_two()
        && device.subgroup_size <= 64
}

fn block_of(element: DataType, device: &DeviceProfile) -> u32 {
    if across(element, device) { LONG_BLOCK } else { TILE_BLOCK }
}

/// Running sums of a number type, of any length; the results have the elements' value type.
pub fn scan(
    kind: ScanKind,
    element: DataType,
    length: u32,
    device: &DeviceProfile,
) -> Result<Plan, PlanError> {
    number(kind.op(), element, "sum")?;
    let mut plan = Plan::new(kind.op());
    let x = plan.input("x", element, length);
    let y = plan.output("y", widened(element), length);
    if length > 0 {
        add_scan(&mut plan, Scan::new(kind, element, length), [x, y], device);
    }
    Ok(plan)
}

/// Parameters of a scan.
#[derive(Clone, Copy)]
struct Scan {
    kind: ScanKind,
    element: DataType,
    /// The expression for the value at an index.
    value: fn(&str) -> String,
    length: u32,
}

impl Scan {
    /// A scan of the elements, unchanged.
    fn new(kind: ScanKind, element: DataType, length: u32) -> Scan {
        Scan { kind, element, value: element_at, length }
    }
}

/// Adds an exclusive scan of `u32`s that are already in a buffer of the plan.
pub(super) fn add_offsets(plan: &mut Plan, length: u32, from_to: [PlanBufferId; 2], device: &DeviceProfile) {
    add_scan(plan, Scan::new(ScanKind::Exclusive, DataType::U32, length), from_to, device);
}

/// Adds the steps that scan the first buffer into the second.
fn add_scan(plan: &mut Plan, scan: Scan, [x, y]: [PlanBufferId; 2], device: &DeviceProfile) {
    let Scan { element, value, .. } = scan;
    let sum_type = widened(element);
    let block = block_of(element, device);
    let count = blocks(scan.length, block);
    let offsets = if count == 1 {
        plan.constant("no offset", &vec![0; sum_type.size()])
    } else {
        let sums = plan.temporary("block sums", sum_type, count);
        let level = Level { name: "scan.sums", element, paired: false, value, combine: Combine::Add, block };
        plan.step_on(grid_of(count, device), level.program(device), &[x, sums]);
        let offsets = plan.temporary("block offsets", sum_type, count);
        add_scan(plan, Scan::new(ScanKind::Exclusive, sum_type, count), [sums, offsets], device);
        offsets
    };
    plan.step_on(grid_of(count, device), block_program(scan, device), &[x, offsets, y]);
}

/// The program that scans every block from its offset.
fn block_program(scan: Scan, device: &DeviceProfile) -> Program {
    let Scan { element, .. } = scan;
    let name = format!("{}.{}", scan.kind.op(), element.name());
    if across(element, device) {
        let running = match scan.kind {
            ScanKind::Inclusive => "subgroup_inclusive_add",
            ScanKind::Exclusive => "subgroup_exclusive_add",
        };
        return kernel! { &across_text(scan, &name, running);
            LANES: device.subgroup_size, ROUNDS: LONG_BLOCK / device.subgroup_size, BLOCK: LONG_BLOCK,
        };
    }
    kernel! { &tiles_text(scan, &name);
        ZERO: Value::zero(element.value_type()), CHUNK: TILE_CHUNK, LANES: TILE_LANES, BLOCK: TILE_BLOCK,
    }
}

fn across_text(Scan { element, value, .. }: Scan, name: &str, running: &str) -> String {
    let (sum, value) = (widened(element), value("i"));
    format!(
        "
kernel \"{name}\"(x: read {element}[], offsets: read {sum}[], y: read_write {sum}[]) over y workgroup LANES {{
  region \"{name}\" {{
    let block = workgroup.y * grid_size.x + workgroup.x
    let carry = offsets[block]
    if block < (len(y) - 1) / BLOCK + 1 {{
      for k in 0..ROUNDS {{
        let i = block * BLOCK + k * LANES + local.x
        let value = {value}
        y[i] = {running}(value) + carry
        carry += subgroup_reduce_add(value)
      }}
    }}
  }}
}}"
    )
}

/// Each lane scans its own chunk in workgroup memory; neighbouring lanes read and write
/// neighbouring elements.
fn tiles_text(Scan { kind, element, value, .. }: Scan, name: &str) -> String {
    let (sum, value) = (widened(element), value("first + j * LANES + local.x"));
    let (before, behind) = match kind {
        ScanKind::Inclusive => ("", "tile[local.x * CHUNK + j] = sum"),
        ScanKind::Exclusive => ("tile[local.x * CHUNK + j] = sum", ""),
    };
    format!(
        "
kernel \"{name}\"(
  x: read {element}[], offsets: read {sum}[], y: read_write {sum}[],
  tile: workgroup {sum}[BLOCK], chunks: workgroup {sum}[LANES],
) over y workgroup LANES {{
  region \"{name}\" {{
    let block = workgroup.y * grid_size.x + workgroup.x
    let first = block * BLOCK
    if block < (len(y) - 1) / BLOCK + 1 {{
      for j in 0..CHUNK {{ tile[j * LANES + local.x] = {value} }}
      barrier
      let sum = ZERO
      for j in 0..CHUNK {{
        let value = tile[local.x * CHUNK + j]
        {before}
        sum += value
        {behind}
      }}
      chunks[local.x] = sum
      barrier
      if local.x == 0 {{
        let running = offsets[block]
        for j in 0..LANES {{
          let own = chunks[j]
          chunks[j] = running
          running += own
        }}
      }}
      barrier
      for j in 0..CHUNK {{
        let place = j * LANES + local.x
        if first + place < len(y) {{ y[first + place] = chunks[place / CHUNK] + tile[place] }}
      }}
    }}
  }}
}}"
    )
}

/// The elements `x[i]` for which `keep[i]` is not zero, in order: `y` starts with them and ends in
/// zeros, `count` is their number.
pub fn compact(element: DataType, length: u32, device: &DeviceProfile) -> Plan {
    let mut plan = Plan::new("compact");
    let x = plan.input("x", element, length);
    let keep = plan.input("keep", DataType::U32, length);
    let y = plan.output("y", element, length);
    let count = plan.output("count", DataType::U32, 1);
    let positions = plan.temporary("positions", DataType::U32, length.max(1));
    if length > 0 {
        let kept = Scan::new(ScanKind::Exclusive, DataType::U32, length);
        let scan = Scan { value: |index| format!("u32(x[{index}] != 0)"), ..kept };
        add_scan(&mut plan, scan, [keep, positions], device);
        let buffers = format!(
            "x: read {element}[], keep: read u32[], positions: read u32[], y: output {element}[] len_of x"
        );
        let text = format!("kernel \"compact.{element}\"({buffers}) {COMPACT}");
        plan.step(kernel! { &text; }, &[x, keep, positions, y]);
    }
    let program = kernel! {
        "kernel \"compact.count\"(keep: read u32[], positions: read u32[], count: read_write u32[1]) over count {
           region \"compact.count\" {
             let last = len(keep) - 1
             count[0] = select(len(keep) == 0, 0, positions[last] + u32(keep[last] != 0))
           }
         }";
    };
    plan.step(program, &[keep, positions, count]);
    plan
}

const COMPACT: &str = "over x {
  region \"compact\" {
    let i = invocation.x
    if keep[i] != 0 { y[positions[i]] = x[i] }
  }
}";
