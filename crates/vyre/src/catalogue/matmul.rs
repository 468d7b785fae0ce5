//! Matrix products, `c = a b`, row-major, f32.
//!
//! **Order.** Every element of `c` is a sum over k from 0 up, starting from zero. Each step is one
//! `fma` for [`Multiply::Fused`], else a product and a sum. The shape of the tiles does not affect
//! the result.
//!
//! **Shapes.** [`MatmulShape::Panels`] is for the processor: `b` is packed into panels as wide as a
//! vector and `a` into stripes of a few rows, so that the innermost loop reads both sequentially
//! and keeps a stripe times a panel in registers. [`MatmulShape::Tiles`] is for devices: a
//! workgroup keeps square tiles of both in workgroup memory, and every invocation computes several
//! elements.

use super::family::{Family, Member, tune_family};
use super::plan::{Plan, PlanError};
use super::text::{area, kernel, lines};
use std::fmt;
use std::sync::Arc;
use vyre_driver::tuner::{self, Progress, TuneLimits, TuneReport, Tuner};
use vyre_driver::{BackendError, DeviceClass, DeviceProfile, VyreBackend};
use vyre_foundation::ir::{DataType, Program};

/// How a product is added to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Multiply {
    /// With one rounding.
    Fused,
    /// With two roundings.
    Separate,
}

impl Multiply {
    /// The statement that adds a product.
    fn step(self, sum: &str, a: &str, b: &str) -> String {
        match self {
            Multiply::Fused => format!("{sum} = fma({a}, {b}, {sum})"),
            Multiply::Separate => format!("{sum} = {sum} + {a} * {b}"),
        }
    }
}

/// How the work is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatmulShape {
    /// Stripes of 1 to 8 rows times panels of 1 to 64 columns, a power of two.
    Panels {
        /// Rows of a stripe.
        rows: u32,
        /// Columns of a panel: the lanes of a workgroup.
        lanes: u32,
    },
    /// Workgroups of `side` by `side` invocations, `side` from 1 to 16, with `each` by `each`
    /// elements, 1 to 4.
    Tiles {
        /// Invocations per side.
        side: u32,
        /// Elements of an invocation per side.
        each: u32,
    },
}

/// The sizes of a product: `a` is `rows` by `depth`, `b` is `depth` by `columns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of `a` and `c`.
    pub rows: u32,
    /// Columns of `a`, rows of `b`.
    pub depth: u32,
    /// Columns of `b` and `c`.
    pub columns: u32,
}

/// The default shape for a device.
pub fn shape_for(device: &DeviceProfile) -> MatmulShape {
    if device.device_class != DeviceClass::Cpu {
        return MatmulShape::Tiles { side: 16, each: 2 };
    }
    // Twelve sums in vectors of 8 lanes, enough to hide the latency of an addition, with two
    // vectors of `b` and an element of `a`: 16 registers. At 1024³ on one thread of a Zen 4, 4x8
    // takes 2.5 times as long, 4x16 1.3 times, 8x16 2.1 times.
    MatmulShape::Panels { rows: 6, lanes: 16 }
}

/// The shapes to try on a device: its default first, then the others within its limits for these
/// sizes.
pub fn shapes_to_try(sizes: Sizes, device: &DeviceProfile) -> Vec<MatmulShape> {
    let default = shape_for(device);
    let others: Vec<MatmulShape> = if device.device_class == DeviceClass::Cpu {
        let panels = |rows| [4, 8, 16].map(|lanes| MatmulShape::Panels { rows, lanes });
        [1, 2, 4, 6, 8].into_iter().flat_map(panels).collect()
    } else {
        let tiles = |side| [1, 2, 4].map(|each| MatmulShape::Tiles { side, each });
        [8, 16].into_iter().flat_map(tiles).collect()
    };
    let fits = |shape: &MatmulShape| *shape != default && shape.fits(sizes, device);
    std::iter::once(default).chain(others.into_iter().filter(fits)).collect()
}

/// Measures the shapes on a backend, each checked against the default's bits, and records the one
/// to use: the default, unless another won a duel with it. [`tuned_shape`] returns it. `progress`
/// is called after every pass.
pub fn tune(
    sizes: Sizes,
    backend: &Arc<dyn VyreBackend>,
    tuner: (&Tuner, TuneLimits),
    progress: &mut dyn FnMut(Progress),
) -> Result<TuneReport, BackendError> {
    let shapes = shapes_to_try(sizes, &backend.device_profile());
    let member = |shape: &MatmulShape| {
        let plan = matmul_shaped(sizes, Multiply::Separate, *shape);
        plan.map(|plan| Member { name: shape.to_string(), parameters: shape.parameters(), plan })
    };
    let members: Result<Vec<Member>, PlanError> = shapes.iter().map(member).collect();
    let members = members.map_err(|error| BackendError::new(error.to_string()))?;
    let (tuner, limits) = tuner;
    let family = Family { name: &decision_name(sizes), members, backend, limits };
    tune_family(tuner, family, progress)
}

/// The shape found fastest for these sizes, if it still fits the device; else the default.
pub fn tuned_shape(sizes: Sizes, device: &DeviceProfile, tuner: &Tuner) -> MatmulShape {
    let decided = tuner.resolve(&decision_name(sizes));
    let mut known = shapes_to_try(sizes, device).into_iter();
    known.find(|shape| shape.parameters() == decided).unwrap_or_else(|| shape_for(device))
}

/// The key under which a decision for these sizes is kept.
fn decision_name(Sizes { rows, depth, columns }: Sizes) -> String {
    format!("matmul {rows}x{depth}x{columns}")
}

impl fmt::Display for MatmulShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MatmulShape::Panels { rows, lanes } => write!(f, "panels {rows}x{lanes}"),
            MatmulShape::Tiles { side, each } => write!(f, "tiles {side}x{side}, {each}x{each} each"),
        }
    }
}

impl MatmulShape {
    /// The parameters as three numbers, the last of which gives the kind; they match no default
    /// workgroup size.
    fn parameters(self) -> [u32; 3] {
        match self {
            MatmulShape::Panels { rows, lanes } => [rows, lanes, 2],
            MatmulShape::Tiles { side, each } => [side, each, 3],
        }
    }

    /// Whether the device's limits on workgroups, workgroup memory and grids allow it.
    fn fits(self, sizes: Sizes, device: &DeviceProfile) -> bool {
        let Sizes { rows, columns, .. } = sizes;
        let (group, domain, shared) = match self {
            MatmulShape::Panels { rows: stripe, lanes } => {
                ([lanes, 1, 1], [columns, rows.div_ceil(stripe), 1], 0)
            }
            MatmulShape::Tiles { side, each } => {
                let (tile, along) = (side * each, |count: u32| count.div_ceil(each));
                ([side, side, 1], [along(columns), along(rows), 1], 2 * 4 * tile * tile)
            }
        };
        let shape = tuner::Shape { workgroup_size: group, elements_per_invocation: 1 };
        let memory = device.max_shared_memory_bytes;
        shape.refusal(device, domain).is_none() && (memory == 0 || shared <= memory)
    }
}

/// `c = a b` with separate products and sums, in the default shape for a device: the same bits
/// everywhere.
pub fn matmul(sizes: Sizes, device: &DeviceProfile) -> Result<Plan, PlanError> {
    matmul_shaped(sizes, Multiply::Separate, shape_for(device))
}

/// `c = a b` with separate products and sums, in the shape that [`tune`] found fastest, else the
/// default.
pub fn matmul_tuned(sizes: Sizes, device: &DeviceProfile, tuner: &Tuner) -> Result<Plan, PlanError> {
    matmul_shaped(sizes, Multiply::Separate, tuned_shape(sizes, device, tuner))
}

/// `c = a b` in a given shape.
pub fn matmul_shaped(sizes: Sizes, multiply: Multiply, shape: MatmulShape) -> Result<Plan, PlanError> {
    let mut plan = Plan::new("matmul");
    let Sizes { rows, depth, columns } = sizes;
    let a_count = area(plan.op, depth, rows)?;
    let b_count = area(plan.op, columns, depth)?;
    let c_count = area(plan.op, columns, rows)?;
    match shape {
        MatmulShape::Panels { rows, lanes }
            if !(1..=8).contains(&rows) || !lanes.is_power_of_two() || lanes > 64 =>
        {
            let message = format!("panels of {rows} rows and {lanes} lanes; 1 to 8 rows, 1 to 64 lanes");
            return Err(PlanError { op: plan.op, message });
        }
        MatmulShape::Tiles { side, each } if !(1..=16).contains(&side) || !(1..=4).contains(&each) => {
            let message = format!("tiles of {side} invocations with {each} elements; 1 to 16 and 1 to 4");
            return Err(PlanError { op: plan.op, message });
        }
        MatmulShape::Panels { .. } | MatmulShape::Tiles { .. } => {}
    }
    let a = plan.input("a", DataType::F32, a_count);
    let b = plan.input("b", DataType::F32, b_count);
    let c = plan.output("c", DataType::F32, c_count);
    if c_count == 0 {
        return Ok(plan);
    }
    if depth == 0 {
        let zeros = kernel! {
            "kernel \"matmul.zero\"(c: output f32[COUNT]) over c { region \"matmul.zero\" { c[invocation.x] = 0.0 } }"; COUNT: c_count,
        };
        plan.step(zeros, &[c]);
        return Ok(plan);
    }
    match shape {
        MatmulShape::Panels { rows: stripe, lanes } => {
            let (stripes, panels) = (rows.div_ceil(stripe), columns.div_ceil(lanes));
            let stripes_count = area(plan.op, stripes * stripe, depth)?;
            let panels_count = area(plan.op, panels * lanes, depth)?;
            let packed_a = plan.temporary("stripes of a", DataType::F32, stripes_count);
            let packed_b = plan.temporary("panels of b", DataType::F32, panels_count);
            plan.step(panel_program(PACK_A, sizes, [stripe, lanes]), &[a, packed_a]);
            plan.step(panel_program(PACK_B, sizes, [stripe, lanes]), &[b, packed_b]);
            let text = panels_text(sizes, multiply, [stripe, lanes]);
            plan.step(panel_program(&text, sizes, [stripe, lanes]), &[packed_a, packed_b, c]);
        }
        MatmulShape::Tiles { side, each } => plan.step(tile_program(sizes, multiply, side, each), &[a, b, c]),
    }
    Ok(plan)
}

fn panel_program(text: &str, sizes: Sizes, [stripe, lanes]: [u32; 2]) -> Program {
    let Sizes { rows, depth, columns } = sizes;
    let (stripes, panels) = (rows.div_ceil(stripe), columns.div_ceil(lanes));
    kernel! { text;
        PACKED_A: stripes * stripe * depth, PACKED_B: panels * lanes * depth,
        COUNT_A: rows * depth, COUNT_B: depth * columns, COUNT_C: rows * columns,
        STRIPES: stripes, STRIPE: stripe, ACROSS: panels * lanes, LANES: lanes,
        ROWS: rows, DEPTH: depth, COLUMNS: columns,
    }
}

/// Row r of column k in stripe s is at `(s * depth + k) * stripe + r`. Rows below the last are
/// zero.
const PACK_A: &str = "
kernel \"matmul.pack_a\"(a: read f32[COUNT_A], packed: read_write f32[PACKED_A]) over [DEPTH, STRIPES] {
  region \"matmul.pack_a\" {
    for r in 0..STRIPE {
      let row = invocation.y * STRIPE + r
      let value = select(row < ROWS, a[row * DEPTH + invocation.x], 0.0)
      packed[(invocation.y * DEPTH + invocation.x) * STRIPE + r] = value
    }
  }
}";

/// Column l of row k in panel p is at `(p * depth + k) * lanes + l`. Columns beyond the last are
/// zero.
const PACK_B: &str = "
kernel \"matmul.pack_b\"(b: read f32[COUNT_B], packed: read_write f32[PACKED_B]) over ACROSS workgroup LANES {
  region \"matmul.pack_b\" {
    let column = workgroup.x * LANES + local.x
    for k in 0..DEPTH {
      let value = select(column < COLUMNS, b[k * COLUMNS + column], 0.0)
      packed[(workgroup.x * DEPTH + k) * LANES + local.x] = value
    }
  }
}";

fn panels_text(sizes: Sizes, multiply: Multiply, [stripe, lanes]: [u32; 2]) -> String {
    let whole = sizes.rows.is_multiple_of(stripe) && sizes.columns.is_multiple_of(lanes);
    let starting = lines(0..stripe, |r| format!("let c{r} = 0.0"));
    let round = lines(0..stripe, |r| multiply.step(&format!("c{r}"), &format!("a[left + {r}]"), "right"));
    let finish = lines(0..stripe, |r| {
        let store = format!("c[(row + {r}) * COLUMNS + column] = c{r}");
        if whole { store } else { format!("if row + {r} < ROWS && column < COLUMNS {{ {store} }}") }
    });
    format!(
        "
kernel \"matmul.panels\"(a: read f32[PACKED_A], b: read f32[PACKED_B], c: read_write f32[COUNT_C])
over [ACROSS, STRIPES] workgroup [LANES, 1] {{
  region \"matmul.panels\" {{
    {starting}
    for k in 0..DEPTH {{
      let left = (workgroup.y * DEPTH + k) * STRIPE
      let right = b[(workgroup.x * DEPTH + k) * LANES + local.x]
      {round}
    }}
    let row = workgroup.y * STRIPE
    let column = workgroup.x * LANES + local.x
    {finish}
  }}
}}"
    )
}

fn tile_program(sizes: Sizes, multiply: Multiply, side: u32, each: u32) -> Program {
    let Sizes { rows, depth, columns } = sizes;
    let block = side * each;
    kernel! { &tiles_text(multiply, side, each);
        COUNT_A: rows * depth, COUNT_B: depth * columns, COUNT_C: rows * columns, CELLS: block * side,
        DOMAIN_X: columns.div_ceil(block) * side, DOMAIN_Y: rows.div_ceil(block) * side, BLOCK: block, SIDE: side,
        DEPTH: depth, ROWS: rows, COLUMNS: columns,
    }
}

/// The last tiles along k are cut short, so that no zero is added to a sum.
fn tiles_text(multiply: Multiply, side: u32, each: u32) -> String {
    let block = side * each;
    let left = lines(0..each, |r| format!("let a{r} = left[(local.y * {each} + {r}) * {side} + k]"));
    let right = lines(0..each, |r| format!("let b{r} = right[k * {block} + {r} * {side} + local.x]"));
    // Elements outside the matrices are zero.
    let load = lines(0..each, |r| {
        format!(
            "let row{r} = top + {r} * {side} + local.y
             left[({r} * {side} + local.y) * {side} + local.x] =
               select(row{r} < ROWS && step + local.x < DEPTH, a[row{r} * DEPTH + step + local.x], 0.0)
             let column{r} = across + {r} * {side} + local.x
             right[local.y * {block} + {r} * {side} + local.x] =
               select(step + local.y < DEPTH && column{r} < COLUMNS, b[(step + local.y) * COLUMNS + column{r}], 0.0)"
        )
    });
    let cells = || (0..each).flat_map(|r| (0..each).map(move |q| (r, q)));
    let step = |(r, q)| multiply.step(&format!("c{r}{q}"), &format!("a{r}"), &format!("b{q}"));
    let finish = lines(cells(), |(r, q)| {
        format!(
            "if top + local.y * {each} + {r} < ROWS && across + {q} * {side} + local.x < COLUMNS {{
               c[(top + local.y * {each} + {r}) * COLUMNS + across + {q} * {side} + local.x] = c{r}{q}
             }}"
        )
    });
    let starting = lines(cells(), |(r, q)| format!("let c{r}{q} = 0.0"));
    let round = lines(cells(), step);
    format!(
        "
kernel \"matmul.tiles\"(
  a: read f32[COUNT_A], b: read f32[COUNT_B], c: read_write f32[COUNT_C],
  left: workgroup f32[CELLS], right: workgroup f32[CELLS],
) over [DOMAIN_X, DOMAIN_Y] workgroup [SIDE, SIDE] {{
  region \"matmul.tiles\" {{
    let top = workgroup.y * BLOCK
    let across = workgroup.x * BLOCK
    {starting}
    for step in 0..DEPTH step SIDE {{
      {load}
      barrier
      for k in 0..min(SIDE, DEPTH - step) {{
        {left}
        {right}
        {round}
      }}
      barrier
    }}
    {finish}
  }}
}}"
    )
}
