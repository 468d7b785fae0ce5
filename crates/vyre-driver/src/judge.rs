//! Judges whether a result is right; the only place that decides it.
//!
//! **Bit for bit** where device and program are strict. **Within bounds** where the device's
//! profile is not strict, or the configuration allows native functions: the row of every op
//! declares its error bound, and the bound of an output is derived along the data flow (see
//! [`propagated`]). **The caller's budget** of units in the last place is added to both.
//!
//! Certification, verification, canaries, the tuner, recompilation, `certify_op` and `vyre conform`
//! all use it.

use crate::{DeviceProfile, DispatchConfig};
use vyre_foundation::ir::{BufferDecl, DataType, Program, Value, ValueType};
use vyre_foundation::kernel::{Def, KernelBody, Place, Stmt, StmtKind, ValueId};

/// The permitted differences between outputs and the oracle's; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judge {
    /// Permitted error of a float in units in the last place.
    pub ulps: u64,
    /// Whether a subnormal can be flushed to zero.
    pub subnormals: bool,
    /// Whether the sign of a zero can differ.
    pub zero_sign: bool,
    /// Whether any result is accepted if the exact one is infinite or NaN.
    pub non_finite: bool,
}

/// A buffer to judge.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its element type.
    pub element: DataType,
}

impl Judge {
    /// The judge for these programs, run in sequence, on a device with this configuration.
    pub fn new<'a>(
        profile: &DeviceProfile,
        programs: impl IntoIterator<Item = &'a Program>,
        config: &DispatchConfig,
    ) -> Judge {
        let budget = config.ulp_budget.map_or(0, u64::from);
        let native = config.native_math == Some(true);
        if profile.strict_float && !native {
            return Judge { ulps: budget, zero_sign: budget > 0, ..Judge::default() };
        }
        let departs = if profile.strict_float { Default::default() } else { profile.float_departures };
        let bound = |program: &Program| match program.validate() {
            Ok(kernel) => propagated(&kernel, u64::from(departs.contracts)),
            Err(_) => 0,
        };
        let ulps = programs.into_iter().map(bound).fold(budget, u64::saturating_add);
        Judge {
            ulps,
            subnormals: departs.flushes_subnormals,
            zero_sign: departs.ignores_zero_sign || budget > 0,
            non_finite: departs.ignores_non_finite,
        }
    }

    /// Describes the first difference that is not permitted; `None` if there is none.
    pub fn difference(
        &self,
        outputs: &[Output<'_>],
        expected: &[Vec<u8>],
        found: &[Vec<u8>],
    ) -> Option<String> {
        if expected.len() != found.len() {
            return Some(format!("it returned {} outputs, the oracle {}", found.len(), expected.len()));
        }
        let mut pairs = expected.iter().zip(found).enumerate();
        pairs.find_map(|(position, (expected, found))| {
            let declared = outputs.get(position);
            let name = declared.map_or_else(|| format!("output {position}"), |output| output.name.to_owned());
            if expected.len() != found.len() {
                return Some(format!("`{name}` has {} bytes, the oracle's {}", found.len(), expected.len()));
            }
            let element = declared.map_or(DataType::U8, |output| output.element);
            let index = self.first_wrong(element, expected, found)?;
            let (from, to) = (index * element.size(), (index + 1) * element.size());
            let bits = |bytes: &[u8]| {
                let digits = bytes.get(from..to).unwrap_or_default().iter().rev();
                digits.map(|byte| format!("{byte:02x}")).collect::<String>()
            };
            Some(format!("`{name}[{index}]` has bits 0x{}, the oracle's 0x{}", bits(found), bits(expected)))
        })
    }

    /// The index of the first unacceptable element, of two buffers of equal length.
    pub fn first_wrong(&self, element: DataType, expected: &[u8], found: &[u8]) -> Option<usize> {
        // By far the most common case, and comparing whole slices is fastest.
        if expected == found {
            return None;
        }
        let size = element.size();
        let mut elements = expected.chunks(size).zip(found.chunks(size));
        elements.position(|(expected, found)| !self.accepts(element, expected, found))
    }

    /// Whether an element is acceptable in place of the expected one.
    fn accepts(&self, element: DataType, expected: &[u8], found: &[u8]) -> bool {
        if expected == found {
            return true;
        }
        let (Some(a), Some(b)) = (ordered(element, expected), ordered(element, found)) else { return false };
        let small = |x: i128| x.abs() < smallest_normal(element);
        let huge = infinity(element);
        // Bits that differ at equal positions are the two zeros, whose sign has a separate flag.
        let close = a != b && (a - b).unsigned_abs() <= u128::from(self.ulps);
        (self.non_finite && a.abs() >= huge)
            || (self.subnormals && small(a) && small(b))
            || (self.zero_sign && a == 0 && b == 0)
            || (self.ulps > 0 && a.abs() > huge && b.abs() > huge)
            || (a.abs() < huge && b.abs() < huge && close)
    }
}

/// The outputs of a program, in binding order.
pub fn outputs_of(program: &Program) -> Vec<Output<'_>> {
    let mut decls: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_output()).collect();
    decls.sort_by_key(|decl| decl.binding);
    decls.into_iter().map(|decl| Output { name: &decl.name, element: decl.element }).collect()
}

/// Maximum number of loop iterations to follow; errors that keep growing exceed any meaningful
/// number of units in the last place.
const ROUNDS: usize = 64;

/// The error bound of the kernel's outputs, in units in the last place: the error of a value is the
/// sum of its operands' errors plus the bound of its op; that of memory and variables is the
/// maximum of everything written to them. `contraction` is added for every float op that a device
/// can fuse with another.
fn propagated(kernel: &KernelBody, contraction: u64) -> u64 {
    let mut flow = Flow {
        kernel,
        contraction,
        values: vec![0; kernel.values.len()],
        locals: vec![0; kernel.locals.len()],
        buffers: vec![0; kernel.buffers.len()],
        arrays: vec![0; kernel.arrays.len()],
    };
    flow.block(&kernel.body);
    let written =
        kernel.buffers.iter().zip(&flow.buffers).filter(|(buffer, _)| buffer.decl.access.is_output());
    written.map(|(_, &error)| error).max().unwrap_or(0)
}

/// The errors known so far, in units in the last place.
struct Flow<'a> {
    kernel: &'a KernelBody,
    contraction: u64,
    values: Vec<u64>,
    locals: Vec<u64>,
    buffers: Vec<u64>,
    arrays: Vec<u64>,
}

impl Flow<'_> {
    fn block(&mut self, block: &[Stmt]) {
        block.iter().for_each(|stmt| self.statement(stmt));
    }

    fn statement(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Def(id, def) => self.values[id.index()] = self.error(*id, def),
            StmtKind::Set(local, value) => self.locals[local.index()] = self.values[value.index()],
            StmtKind::Store { place, value, .. } => {
                let error = self.values[value.index()];
                let known = self.place(*place);
                *known = error.max(*known);
            }
            StmtKind::If { then, otherwise, .. } => {
                let before = self.locals.clone();
                self.block(then);
                let after = std::mem::replace(&mut self.locals, before);
                self.block(otherwise);
                self.locals.iter_mut().zip(after).for_each(|(local, other)| *local = other.max(*local));
            }
            StmtKind::For { body, .. } | StmtKind::Loop(body) => self.rounds(body),
            StmtKind::Region { body, .. } => self.block(body),
            StmtKind::Clear(_)
            | StmtKind::Break
            | StmtKind::Continue
            | StmtKind::Return
            | StmtKind::Barrier
            | StmtKind::Trap(_) => {}
        }
    }

    /// Iterates a loop until it reaches a fixed point.
    fn rounds(&mut self, body: &[Stmt]) {
        for _ in 0..ROUNDS {
            let before = (self.locals.clone(), self.buffers.clone(), self.arrays.clone());
            self.block(body);
            self.locals.iter_mut().zip(&before.0).for_each(|(local, &other)| *local = other.max(*local));
            if (&self.locals, &self.buffers, &self.arrays) == (&before.0, &before.1, &before.2) {
                return;
            }
        }
    }

    fn error(&mut self, id: ValueId, def: &Def) -> u64 {
        let is_float = matches!(self.kernel.ty(id), ValueType::F32 | ValueType::F64);
        match def {
            Def::Op(op, operands) => {
                let given = operands.iter().map(|id| self.values[id.index()]);
                let given = given.fold(0, u64::saturating_add);
                let own = u64::from(op.row().loose_ulp) + if is_float { self.contraction } else { 0 };
                given.saturating_add(own)
            }
            Def::Get(local) => self.locals[local.index()],
            Def::Load { place, .. } => *self.place(*place),
            Def::Subgroup(_, operands) => {
                operands.iter().map(|id| self.values[id.index()]).fold(self.contraction, u64::saturating_add)
            }
            Def::Const(_) | Def::Len(_) | Def::Builtin(..) | Def::Atomic { .. } => 0,
        }
    }

    fn place(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Buffer(id) => &mut self.buffers[id.index()],
            Place::Array(id) => &mut self.arrays[id.index()],
        }
    }
}

/// A float's position among all floats of its type: neighbours differ by one, both zeros are 0.
/// `None` for other types.
fn ordered(element: DataType, bytes: &[u8]) -> Option<i128> {
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let bits = i128::from(u64::from_le_bytes(word));
    let sign = 1i128 << (8 * element.size() - 1);
    match element.value_type() {
        ValueType::F32 | ValueType::F64 if bits >= sign => Some(sign - bits),
        ValueType::F32 | ValueType::F64 => Some(bits),
        ValueType::Bool | ValueType::U32 | ValueType::I32 | ValueType::U64 | ValueType::I64 => None,
    }
}

/// The position of the smallest normal float of a type: above all mantissas.
fn smallest_normal(element: DataType) -> i128 {
    1 << infinity(element).trailing_zeros()
}

/// The position of infinity.
fn infinity(element: DataType) -> i128 {
    let wide = element.value_type() == ValueType::F64;
    let infinity = if wide { Value::F64(f64::INFINITY) } else { Value::F32(f32::INFINITY) };
    element.narrow(infinity).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FloatDepartures;
    use vyre_foundation::text;

    #[test]
    fn bounds_count_units_in_the_last_place() {
        let check = |element: DataType, a: &[u8], b: &[u8], judge: Judge, expected: bool| {
            assert_eq!(judge.accepts(element, a, b), expected, "{a:?} {b:?} {judge:?}");
        };
        let f32 = |x: f32| x.to_le_bytes();
        let (one, next) = (f32(1.0), f32(f32::from_bits(1.0f32.to_bits() + 1)));
        let strict = Judge::default();
        let loose = Judge { ulps: 1, ..strict };
        check(DataType::F32, &one, &next, strict, false);
        check(DataType::F32, &one, &next, loose, true);
        check(DataType::U32, &one, &next, loose, false);
        check(DataType::F32, &f32(0.0), &f32(-0.0), strict, false);
        check(DataType::F32, &f32(0.0), &f32(-0.0), Judge { zero_sign: true, ..strict }, true);
        check(DataType::F32, &f32(1e-45), &f32(0.0), Judge { subnormals: true, ..strict }, true);
        let normal = f32(f32::MIN_POSITIVE);
        check(DataType::F32, &normal, &f32(0.0), Judge { subnormals: true, ..strict }, false);
        check(DataType::F32, &f32(f32::MAX), &f32(f32::INFINITY), loose, false);
        check(DataType::F32, &f32(f32::NAN), &one, Judge { non_finite: true, ..strict }, true);
        check(DataType::F32, &f32(f32::NAN), &f32(-f32::NAN), strict, false);
        check(DataType::F32, &f32(f32::NAN), &f32(-f32::NAN), loose, true);
        check(DataType::F32, &f32(f32::NAN), &one, loose, false);
        check(DataType::F16, &[0, 0x3C], &[1, 0x3C], loose, true);
    }

    #[test]
    fn the_first_difference_is_named() {
        let outputs = [
            Output { name: "first", element: DataType::U16 },
            Output { name: "second", element: DataType::F32 },
        ];
        let check = |expected: &[&[u8]], found: &[&[u8]], difference: Option<&str>| {
            let owned = |outputs: &[&[u8]]| outputs.iter().map(|output| output.to_vec()).collect::<Vec<_>>();
            let judge = Judge { ulps: 1, ..Judge::default() };
            assert_eq!(judge.difference(&outputs, &owned(expected), &owned(found)).as_deref(), difference);
        };
        let (one, near, away) = (1.0_f32, 1.0_f32.next_up(), 1.0_f32.next_up().next_up());
        let [one, near, away] = [one, near, away].map(f32::to_le_bytes);
        check(&[&[1, 2], &one], &[&[1, 2], &near], None);
        check(&[&[1, 2], &one], &[&[1, 2]], Some("it returned 1 outputs, the oracle 2"));
        check(&[&[1, 2], &[]], &[&[1], &[]], Some("`first` has 1 bytes, the oracle's 2"));
        let integers = "`first[1]` has bits 0x0503, the oracle's 0x0403";
        check(&[&[1, 2, 3, 4], &one], &[&[1, 2, 3, 5], &one], Some(integers));
        let floats = "`second[0]` has bits 0x3f800002, the oracle's 0x3f800000";
        check(&[&[], &one], &[&[], &away], Some(floats));
        let undeclared = "`output 2[1]` has bits 0x03, the oracle's 0x02";
        check(&[&[], &[], &[1, 2]], &[&[], &[], &[1, 3]], Some(undeclared));
    }

    #[test]
    fn bounds_follow_the_data() {
        let contracts = FloatDepartures { contracts: true, ..FloatDepartures::default() };
        let loose = DeviceProfile { float_departures: contracts, ..DeviceProfile::conservative("loose") };
        let strict = DeviceProfile { strict_float: true, ..loose };
        let check = |body: &str, profile: &DeviceProfile, config: DispatchConfig, expected: u64| {
            let unused = "x[7] = x[7]; y[7] = y[7]";
            let source = format!(
                "kernel k(x: read_write f32[], y: read_write u32[]) {{ region \"r\" {{ {body}; {unused} }} }}"
            );
            let program = text::parse(&source).expect("parses");
            assert!(program.validate().is_ok(), "{body}");
            assert_eq!(Judge::new(profile, [&program], &config).ulps, expected, "{body}");
        };
        let budget = |ulps| DispatchConfig { ulp_budget: Some(ulps), ..DispatchConfig::default() };
        let one = "x[0] = x[1] * x[2]";
        check(one, &strict, DispatchConfig::default(), 0);
        check(one, &strict, budget(3), 3);
        check(one, &loose, DispatchConfig::default(), 1);
        check(one, &loose, budget(3), 4);
        check("x[0] = x[1] * x[2] + x[3]", &loose, DispatchConfig::default(), 2);
        check("let a = x[1] * x[2]; x[0] = a * a", &loose, DispatchConfig::default(), 3);
        check("y[0] = y[1] * y[2]", &loose, DispatchConfig::default(), 0);
        let sine = u64::from(vyre_foundation::ops::Op::Sin.row().loose_ulp);
        let native = DispatchConfig { native_math: Some(true), ..DispatchConfig::default() };
        check("x[0] = sin(x[1])", &strict, native, sine);
    }
}
