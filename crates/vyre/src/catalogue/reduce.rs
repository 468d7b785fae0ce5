//! Reductions: sums, least and greatest elements, dot products, the index of the greatest element.
//!
//! **Order.** The order is the same on every device and depends only on the length. The input is
//! cut into blocks of [`BLOCK`] elements. A block has 32 strands: strand s combines elements s, s +
//! 32, s + 64, … in that order, starting from the identity (0 for sums). The strands are then
//! combined in pairs: s with s + 16 for s below 16, then s with s + 8, + 4, + 2, + 1. The blocks'
//! results are reduced in the same way, until one is left. Integer sums wrap, so their order does
//! not matter.
//!
//! **Shapes.** A workgroup has 32 / u lanes with u strands each. On the processor the lanes fill a
//! vector, 8 for example; elsewhere there are 32.

use super::plan::{Plan, PlanBufferId, PlanError};
use super::text::{grid_of, joins, kernel, lines, number, widened};
use vyre_driver::{DeviceClass, DeviceProfile};
use vyre_foundation::ir::{Combine, DataType, Value};

/// Elements reduced by one workgroup: 256 for each of the 32 strands. Two levels of such blocks
/// reduce 2^26 elements. It decides the order of float sums, so that changing it changes results.
pub const BLOCK: u32 = 8192;

/// Strands of a block: the lanes of a warp, and two to four vectors of a processor.
pub(super) const STRANDS: u32 = 32;

/// Lanes of a workgroup: the vector width on the processor, one per strand elsewhere.
pub(super) fn lanes(device: &DeviceProfile) -> u32 {
    let vector = device.subgroup_size;
    let fits = device.device_class == DeviceClass::Cpu && vector.is_power_of_two() && vector <= STRANDS;
    if fits { vector } else { STRANDS }
}

/// One level of a reduction: the value of each element, and how values are combined.
pub(super) struct Level<'a> {
    /// The name of the kernel and the region.
    pub name: &'a str,
    /// The type of the elements read.
    pub element: DataType,
    /// Whether there is a second input `z`.
    pub paired: bool,
    /// The expression for the value at an index.
    pub value: fn(&str) -> String,
    pub combine: Combine,
    pub block: u32,
}

impl Level<'_> {
    /// The program: reduces `x` (and `z`) to one result per block in `y`.
    pub(super) fn program(&self, device: &DeviceProfile) -> vyre_foundation::ir::Program {
        let lanes = lanes(device);
        kernel! { &self.text(lanes);
            IDENTITY: self.combine.identity(self.element.value_type()),
            ROUNDS: self.block / STRANDS, BLOCK: self.block, LANES: lanes, HALVES: lanes.ilog2(), HALF: lanes / 2,
        }
    }

    /// Lanes read neighbouring elements, so every access is wide. Only the last block checks the
    /// length for each element.
    fn text(&self, lanes: u32) -> String {
        let Level { element, .. } = *self;
        let (name, result) = (format!("{}.{element}", self.name), widened(element));
        let second = if self.paired { format!("z: read {element}[],") } else { String::new() };
        let (each, combine) = (STRANDS / lanes, self.combine.op().row().name);
        let value = |strand: u32| (self.value)(&format!("i + {}", strand * lanes));
        let start = lines(0..each, |s| format!("let a{s} = IDENTITY"));
        let whole = lines(0..each, |s| format!("a{s} = {combine}(a{s}, {})", value(s)));
        let part = lines(0..each, |s| {
            format!("if i + {} < len(x) {{ a{s} = {combine}(a{s}, {}) }}", s * lanes, value(s))
        });
        let join = join(each, "a", combine);
        format!(
            "
kernel \"{name}\"(x: read {element}[], {second} y: read_write {result}[], tile: workgroup {result}[LANES]) over y workgroup LANES {{
  region \"{name}\" {{
    let block = workgroup.y * grid_size.x + workgroup.x
    if block < len(y) {{
      let first = block * BLOCK
      {start}
      if len(x) - first >= BLOCK {{
        for k in 0..ROUNDS {{
          let i = first + k * 32 + local.x
          {whole}
        }}
      }} else {{
        for k in 0..ROUNDS {{
          let i = first + k * 32 + local.x
          {part}
        }}
      }}
      {join}
      if local.x == 0 {{ y[block] = tile[0] }}
    }}
  }}
}}"
        )
    }
}

/// The value of an element, unchanged.
pub(super) fn element_at(index: &str) -> String {
    format!("x[{index}]")
}

/// Statements that combine a workgroup's strands, `each` per lane, in pairs; the result is in
/// `tile[0]`.
pub(super) fn join(each: u32, strand: &str, op: &str) -> String {
    let own = lines(joins(each), |(s, other)| format!("{strand}{s} = {op}({strand}{s}, {strand}{other})"));
    format!(
        "
      {own}
      tile[local.x] = {strand}0
      barrier
      for h in 0..HALVES {{
        let half = HALF >> h
        if local.x < half {{ tile[local.x] = {op}(tile[local.x], tile[local.x + half]) }}
        barrier
      }}"
    )
}

/// The number of blocks of an input; even an empty one has a result.
pub(super) fn blocks(length: u32, block: u32) -> u32 {
    length.div_ceil(block).max(1)
}

/// Combines all elements into one, of the elements' value type.
///
/// The result for no elements is the identity: 0 for sums, the greatest value (or infinity) for
/// `Min`, the least for `Max`. A NaN makes a sum NaN; `Min` and `Max` ignore it, as the ops `min`
/// and `max` do.
pub fn reduce(
    combine: Combine,
    element: DataType,
    length: u32,
    device: &DeviceProfile,
) -> Result<Plan, PlanError> {
    let op = match combine {
        Combine::Add => "reduce.sum",
        Combine::Min => "reduce.min",
        Combine::Max => "reduce.max",
        Combine::Mul => "reduce.product",
        Combine::And => "reduce.and",
        Combine::Or => "reduce.or",
        Combine::Xor => "reduce.xor",
    };
    let ty = element.value_type();
    if combine.op().row().signature.result(&[ty, ty]).is_none() || element == DataType::Bool {
        let message = format!("{} does not combine {}", combine.op().row().name, element.name());
        return Err(PlanError { op, message });
    }
    let mut plan = Plan::new(op);
    let x = plan.input("x", element, length);
    let level = Level { name: op, element, paired: false, value: element_at, combine, block: BLOCK };
    reduce_levels(&mut plan, level, &[x], length, device);
    Ok(plan)
}

/// `Σ x[i] * y[i]`, summed in the order of [`reduce`].
pub fn dot(element: DataType, length: u32, device: &DeviceProfile) -> Result<Plan, PlanError> {
    number("dot", element, "product")?;
    let mut plan = Plan::new("dot");
    let x = plan.input("x", element, length);
    let y = plan.input("y", element, length);
    let level = Level {
        name: "dot",
        element,
        paired: true,
        value: |index| format!("x[{index}] * z[{index}]"),
        combine: Combine::Add,
        block: BLOCK,
    };
    reduce_levels(&mut plan, level, &[x, y], length, device);
    Ok(plan)
}

/// Adds the levels of a reduction down to one output element.
fn reduce_levels(
    plan: &mut Plan,
    first: Level<'_>,
    inputs: &[PlanBufferId],
    length: u32,
    device: &DeviceProfile,
) {
    let result = widened(first.element);
    let output = plan.output("result", result, 1);
    let mut sources = inputs.to_vec();
    let mut count = length;
    let mut level = Level { ..first };
    loop {
        let groups = blocks(count, BLOCK);
        let target = if groups == 1 { output } else { plan.temporary("partial", result, groups) };
        let mut bindings = sources;
        bindings.push(target);
        plan.step_on(grid_of(groups, device), level.program(device), &bindings);
        if groups == 1 {
            return;
        }
        sources = vec![target];
        count = groups;
        level = Level { name: "reduce.partial", element: result, paired: false, value: element_at, ..level };
    }
}

/// The index of the greatest element, the first among equals, as a `u32`. NaNs are ignored; if the
/// input has no number, the result is `u32::MAX`.
pub fn argmax(element: DataType, length: u32, device: &DeviceProfile) -> Result<Plan, PlanError> {
    number("argmax", element, "order")?;
    let result = widened(element);
    let mut plan = Plan::new("argmax");
    let x = plan.input("x", element, length);
    let index = plan.output("index", DataType::U32, 1);
    let mut count = length;
    let mut sources = vec![x];
    loop {
        let groups = blocks(count, BLOCK);
        let first = sources.len() == 1;
        let best = plan.temporary("best", result, groups);
        let at = if groups == 1 { index } else { plan.temporary("at", DataType::U32, groups) };
        let program = greatest(if first { element } else { result }, first, device);
        let mut bindings = sources;
        bindings.extend([best, at]);
        plan.step_on(grid_of(groups, device), program, &bindings);
        if groups == 1 {
            return Ok(plan);
        }
        (sources, count) = (vec![best, at], groups);
    }
}

/// A block's greatest element and its index, from elements (`first`) or from other blocks' results.
fn greatest(element: DataType, first: bool, device: &DeviceProfile) -> vyre_foundation::ir::Program {
    let lanes = lanes(device);
    kernel! { &greatest_text(element, first);
        ZERO: Value::zero(element.value_type()), ROUNDS: BLOCK / lanes, BLOCK: BLOCK, LANES: lanes,
        HALVES: lanes.ilog2(), HALF: lanes / 2,
    }
}

/// `0xffffffff` means that there is no candidate yet.
fn greatest_text(element: DataType, first: bool) -> String {
    let (name, positions, position) = match first {
        true => (format!("argmax.first.{element}"), "", "i"),
        false => (format!("argmax.rest.{element}"), "index: read u32[],", "index[i]"),
    };
    let result = widened(element);
    format!(
        "
kernel \"{name}\"(
  x: read {element}[], {positions} best: read_write {result}[], at: read_write u32[],
  values: workgroup {result}[LANES], places: workgroup u32[LANES],
) over best workgroup LANES {{
  region \"{name}\" {{
    let block = workgroup.y * grid_size.x + workgroup.x
    if block < len(best) {{
      let value = ZERO
      let place = 0xffffffff
      for k in 0..ROUNDS {{
        let i = block * BLOCK + k * LANES + local.x
        if i < len(x) {{
          let candidate = x[i]
          let position = {position}
          let above = candidate > value || candidate == value && position < place
          if position != 0xffffffff && candidate == candidate && (place == 0xffffffff || above) {{
            value = candidate
            place = position
          }}
        }}
      }}
      values[local.x] = value
      places[local.x] = place
      barrier
      for h in 0..HALVES {{
        let half = HALF >> h
        if local.x < half {{
          let candidate = values[local.x + half]
          let position = places[local.x + half]
          let mine = values[local.x]
          let above = candidate > mine || candidate == mine && position < places[local.x]
          if position != 0xffffffff && (places[local.x] == 0xffffffff || above) {{
            values[local.x] = candidate
            places[local.x] = position
          }}
        }}
        barrier
      }}
      if local.x == 0 {{
        best[block] = values[0]
        at[block] = places[0]
      }}
    }}
  }}
}}"
    )
}
