//! The checks, all of them, and the way from [`Program`] to [`Kernel`].
//!
//! A program is accepted only if no later stage can fail on it, except for a missing capability or a device. Checked:
//! - names: every one is declared, visible and declared once (`lower`, `declarations`);
//! - types and operand counts of every expression and statement (`lower`);
//! - bindings unique, buffer sizes and borrowed lengths possible (`declarations`);
//! - workgroup size, workgroup memory, private arrays, nesting and total size within limits;
//! - access rights: stores and atomics only where the buffer allows;
//! - functions pure and not recursive (`declarations`, `lower`);
//! - barriers and subgroup ops in uniform control flow only (`kernel::uniformity`);
//! - the top level is all regions.
//!
//! Everything found is reported, not only the first fault. A faulty part yields no value, and what depends on it is
//! skipped in silence, so that one mistake makes one message.

mod declarations;
mod faults;
mod lower;
mod sizes;
#[cfg(test)]
mod tests;

use crate::diagnostics::{Diagnostic, Diagnostics, Severity};
use crate::ir::{Program, Span};
use crate::kernel::{Kernel, KernelBody, facts, uniformity};

pub(crate) use lower::{Noted, Record};

impl Program {
    /// Checks the whole program. Computed once; the kernel is a shared handle.
    pub fn validate(&self) -> Result<Kernel, Diagnostics> {
        self.0.kernel.get_or_init(|| validate(self)).clone()
    }
}

/// What an editor wants to know of a program, valid or not.
#[cfg(feature = "compiler")]
pub(crate) struct Studied {
    pub(crate) found: Vec<Diagnostic>,
    pub(crate) record: Record,
    /// The kernel, if only warnings and divergence were found: types and uniformity of its values are right.
    pub(crate) kernel: Option<KernelBody>,
}

/// Checks a program of which parts could not be read; what has one of the names in them is not told to be missing.
#[cfg(feature = "compiler")]
pub(crate) fn study(program: &Program, unread: std::collections::HashSet<crate::ir::Name>) -> Studied {
    let mut record = Record { unread, ..Record::default() };
    let (kernel, found) = examine(program, Some(&mut record));
    Studied { found, record, kernel }
}

/// The kernel of a program, or everything that is wrong with it.
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

/// All that is found in a program, and its kernel unless names or types are wrong.
fn examine(program: &Program, record: Option<&mut Record>) -> (Option<KernelBody>, Vec<Diagnostic>) {
    let mut found = Vec::new();
    let declared = declarations::check(program, &mut found);
    // A length or domain may name a buffer whose declaration could not be read.
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
    // In the order of the text; faults without a place keep the order in which they were found.
    found.sort_by_key(|item| item.span.map_or(0, |span: Span| span.start));
    found.dedup();
    (is_typed.then_some(kernel), found)
}
