//! Validation: all checks, and the lowering from [`Program`] to [`Kernel`].
//!
//! A program is accepted only if no later stage can fail on it, except for a missing capability or
//! a device. Checked:
//! - names: every one is declared, visible and declared once (`lower`, `declarations`);
//! - types and operand counts of every expression and statement (`lower`);
//! - bindings unique, buffer sizes and borrowed lengths possible (`declarations`);
//! - workgroup size, workgroup memory, private arrays, nesting and total size within limits;
//! - access rights: stores and atomics only where the buffer allows;
//! - functions pure and not recursive (`declarations`, `lower`);
//! - barriers and subgroup ops in uniform control flow only (`kernel::uniformity`);
//! - the top level is all regions.
//!
//! All errors are reported, not only the first. An erroneous part yields no value, and what depends
//! on it is skipped silently, so that one mistake gives one message.

mod declarations;
mod faults;
mod lower;
mod sizes;
#[cfg(test)]
mod tests;

use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::ir::{Program, Span};
use crate::kernel::{Kernel, KernelBody, facts, uniformity};

pub(crate) use lower::{LoweringRecord, Noted};

impl Program {
    /// Validates the program. Computed once; the kernel is a shared handle.
    pub fn validate(&self) -> Result<Kernel, Diagnostics> {
        self.0.kernel.get_or_init(|| validate(self)).clone()
    }
}

/// What an editor needs to know about a program, valid or not.
#[cfg(feature = "compiler")]
pub(crate) struct Studied {
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) record: LoweringRecord,
    /// The kernel, if only warnings and divergence were found; its types and uniformity are then
    /// correct.
    pub(crate) kernel: Option<KernelBody>,
}

/// Checks a program with unparsed parts; names that occur in those parts are not reported as
/// missing.
#[cfg(feature = "compiler")]
pub(crate) fn study(program: &Program, unread: hashbrown::HashSet<crate::ir::Name>) -> Studied {
    let mut record = LoweringRecord { unread, ..LoweringRecord::default() };
    let (kernel, found) = examine(program, Some(&mut record));
    Studied { found, record, kernel }
}

/// The kernel of a program, or all of its errors.
fn validate(program: &Program) -> Result<Kernel, Diagnostics> {
    let source = program.source().map(|map| map.source.clone());
    let (kernel, found) = examine(program, None);
    if let Some(mut kernel) = kernel.filter(|_| found.iter().all(|item| item.severity() == Severity::Warning))
    {
        kernel.warnings = Diagnostics::new(found, source.clone());
        kernel.source = source;
        return Ok(Kernel::new(kernel));
    }
    Err(Diagnostics::new(found, source))
}

/// All diagnostics of a program, and its kernel unless names or types are wrong.
fn examine(program: &Program, record: Option<&mut LoweringRecord>) -> (Option<KernelBody>, Vec<Diagnostic>) {
    let mut found = Vec::new();
    let declared = declarations::check(program, &mut found);
    // A length or domain can name a buffer whose declaration was not parsed.
    for name in record.iter().flat_map(|record| &record.unread) {
        let missing = faults::unknown_buffer(name, None).message;
        found.retain(|item| item.message != missing);
    }
    let mut kernel = lower::lower(program, declared, &mut found, record);
    let is_typed = found.iter().all(|item| item.severity() == Severity::Warning);
    if is_typed {
        facts::derive(&mut kernel);
        for divergence in uniformity::analyze(&mut kernel) {
            found.push(faults::divergent(divergence));
        }
    }
    // In source order; diagnostics without a span keep the order in which they were found.
    found.sort_by_key(|item| item.span.map_or(0, |span: Span| span.start));
    found.dedup();
    (is_typed.then_some(kernel), found)
}
