//! Uniform values that stay the same in nearly all calls, and the program specialised to them.
//!
//! Samples the single-value uniforms of one call in every N. Once they have stayed the same often
//! enough, the program is compiled with the values as literals, so that what follows from them
//! (branches, loop counts, products) is worked out at compile time. Its buffers are unchanged, so
//! it is bound like the program itself; a call with other values does not use it.

use crate::argument::Bound;
use crate::parameter::Parameter;
use std::sync::{Mutex, PoisonError};
use vyre_foundation::ir::{
    Access, Axis, Domain, Expr, Node, Program, Value, rewrite_block, rewrite_expr, walk_block,
};

/// Samples in a row with the same values before they count as constant: with one call sampled in
/// sixteen, 256 calls. Each change of values costs a compile.
const LOOKS: u32 = 16;
/// Number of different values tried before the program is left alone, which bounds what a caller
/// whose values change slowly spends on compiles.
const MOST_TRIES: u32 = 3;

/// The values of a call's single-value uniforms, by position among the parameters.
pub(crate) type Values = Vec<(usize, Vec<u8>)>;

/// Sampled uniforms of a routine.
#[derive(Default)]
pub(crate) struct History(Mutex<SampledValues>);

#[derive(Default)]
struct SampledValues {
    values: Values,
    looks: u32,
    /// Whether these values were tried.
    tried: bool,
    tries: u32,
}

impl History {
    /// Samples a call. Returns whether its values have become constant and were not tried yet.
    pub(crate) fn look(&self, parameters: &[Parameter], memory: &[Bound<'_>]) -> bool {
        // Another thread is taking the same sample.
        let Ok(mut seen) = self.0.try_lock() else { return false };
        if seen.tries >= MOST_TRIES {
            return false;
        }
        if seen.values.is_empty() || !has_values(&seen.values, memory) {
            let Some(values) = values_of(parameters, memory) else { return false };
            *seen = SampledValues { values, looks: 0, tried: false, tries: seen.tries };
        }
        seen.looks = seen.looks.saturating_add(1);
        // What follows costs more than a sample, so it is not done every time while the routine is
        // not hot.
        seen.looks.is_multiple_of(LOOKS) && !seen.tried
    }

    /// The values to try, returned to one caller only.
    pub(crate) fn take(&self) -> Option<Values> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.tried || seen.looks < LOOKS {
            return None;
        }
        seen.tried = true;
        seen.tries += 1;
        Some(seen.values.clone())
    }
}

/// The values of the single-value uniforms; `None` if there are none, or one is not in host memory.
fn values_of(parameters: &[Parameter], memory: &[Bound<'_>]) -> Option<Values> {
    let mut values = Values::new();
    for (position, (parameter, memory)) in parameters.iter().zip(memory).enumerate() {
        if parameter.access == Access::Uniform && parameter.count == 1 {
            values.push((position, memory.bytes()?.to_vec()));
        }
    }
    (!values.is_empty()).then_some(values)
}

/// Whether a call has these values.
pub(crate) fn has_values(values: &Values, memory: &[Bound<'_>]) -> bool {
    values.iter().all(|(position, value)| memory.get(*position).and_then(Bound::bytes) == Some(value))
}

/// The program with these values in place of its uniforms; `None` if it reads none of them.
pub(crate) fn specialise(program: &Program, parameters: &[Parameter], values: &Values) -> Option<Program> {
    let constants: Vec<(&str, Value)> = values
        .iter()
        .filter_map(|(position, bytes)| {
            let parameter = parameters.get(*position)?;
            Some((&*parameter.name, parameter.element.load(bytes)?))
        })
        .collect();
    // A private array of the same name would hide the uniform.
    let mut hidden = false;
    walk_block(
        program.entry(),
        &mut |node| {
            if let Node::Array { name, .. } = node {
                hidden |= constants.iter().any(|(constant, _)| **name == **constant);
            }
        },
        &mut |_| {},
    );
    let mut replaced = false;
    let mut in_place = |expr: Expr| {
        let Expr::Load(name, index) = &expr else { return expr };
        let first = matches!(&index[..], [Expr::Literal(Value::U32(0))]);
        let Some((_, value)) = constants.iter().find(|(constant, _)| first && **name == **constant) else {
            return expr;
        };
        replaced = true;
        Expr::Literal(*value)
    };
    let body = rewrite_block(program.entry().clone(), &mut |node| vec![node], &mut in_place);
    let domain = with_values(program.domain(), &mut in_place);
    if hidden || !replaced {
        return None;
    }
    let special = Program::new(program.buffers().to_vec(), program.workgroup_size(), body.into_vec())
        .with_functions(program.functions().to_vec())
        .with_domain(domain);
    Some(match program.name() {
        Some(name) => special.with_name(name.clone()),
        None => special,
    })
}

/// The domain with values in place of uniforms.
fn with_values(domain: &Domain, in_place: &mut dyn FnMut(Expr) -> Expr) -> Domain {
    match domain {
        Domain::Axes(axes) => Domain::Axes(axes.clone().map(|axis| match axis {
            Axis::Of(formula) => rewrite_expr(formula.expr().clone(), in_place).into(),
            Axis::Count(count) => Axis::Count(count),
        })),
        Domain::Default | Domain::Counts(_) | Domain::LenOf(_) => domain.clone(),
    }
}
