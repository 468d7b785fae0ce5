//! Checks of declarations: shape, buffers, lengths, functions.

use super::faults::{self, Found};
use super::sizes::FormulaResolver;
use crate::diagnostics::closest;
use crate::ir::{Access, BufferDecl, Domain, Expr, Name, Program, Span, Value, walk_block, walk_expr};
use crate::kernel::{BufferId, KernelBuffer, KernelDomain, Known};
use hashbrown::HashMap;

/// The resolved declarations.
pub(super) struct Declarations {
    pub(super) buffers: Vec<KernelBuffer>,
    pub(super) buffer_ids: HashMap<Name, BufferId>,
    pub(super) function_ids: HashMap<Name, usize>,
    /// Per function: whether inlining it terminates.
    pub(super) finite: Vec<bool>,
    pub(super) domain: KernelDomain,
}

/// Limit on workgroup memory, which the interpreter allocates. `matmul` has the most of the
/// benchmarks, 16 KiB; devices have their own limits.
const MAX_WORKGROUP_BYTES: u64 = 1 << 30;

pub(super) fn check(program: &Program, found: &mut Found) -> Declarations {
    let at = DeclarationSpans(program);
    let size = program.workgroup_size();
    if size.contains(&0) || size.iter().map(|&n| u128::from(n)).product::<u128>() > i32::MAX as u128 {
        found.push(faults::workgroup_size(size).at(at.header()));
    }
    if !program.is_region_wrapped() {
        found.push(faults::not_regions().at(at.header()));
    }
    let buffer_ids = buffer_names(program, found);
    bindings(program, found);
    workgroup_memory(program, found);
    let buffers = lengths(program, &buffer_ids, found);
    let domain = domain(program, &buffer_ids, found);
    let function_ids = function_names(program, found);
    let finite = finite_functions(program, &function_ids, found);
    Declarations { buffers, buffer_ids, function_ids, finite, domain }
}

/// Source spans of declarations, if there is a text.
struct DeclarationSpans<'a>(&'a Program);

impl DeclarationSpans<'_> {
    /// The domain after `over`, or the header if there is none.
    fn domain(&self) -> Option<Span> {
        self.0.source().map(|map| if map.domain == Span::default() { map.header } else { map.domain })
    }

    fn header(&self) -> Option<Span> {
        self.0.source().map(|map| map.header)
    }

    fn buffer(&self, index: usize) -> Option<Span> {
        self.0.source().and_then(|map| map.buffers.get(index).copied())
    }

    fn function(&self, index: usize) -> Option<Span> {
        self.0.source().and_then(|map| map.functions.get(index).copied())
    }
}

fn buffer_names(program: &Program, found: &mut Found) -> HashMap<Name, BufferId> {
    let mut ids = HashMap::new();
    for (index, decl) in program.buffers().iter().enumerate() {
        if ids.contains_key(&decl.name) {
            found.push(
                faults::duplicate_name(&decl.name, "a buffer").at(DeclarationSpans(program).buffer(index)),
            );
        } else {
            ids.insert(decl.name.clone(), BufferId(index as u32));
        }
    }
    ids
}

fn bindings(program: &Program, found: &mut Found) {
    let mut first_with: HashMap<u32, &BufferDecl> = HashMap::new();
    for (index, decl) in program.buffers().iter().enumerate() {
        if decl.access == Access::Workgroup {
            continue;
        }
        match first_with.get(&decl.binding) {
            Some(first) => {
                let fault = faults::duplicate_binding(decl.binding, &first.name, &decl.name);
                found.push(fault.at(DeclarationSpans(program).buffer(index)));
            }
            None => {
                first_with.insert(decl.binding, decl);
            }
        }
    }
}

fn workgroup_memory(program: &Program, found: &mut Found) {
    let mut total = 0;
    for (index, decl) in program.buffers().iter().enumerate() {
        if decl.access == Access::Workgroup {
            total += u64::from(decl.count) * decl.element.size() as u64;
            if decl.count == 0 {
                found.push(faults::workgroup_count(&decl.name).at(DeclarationSpans(program).buffer(index)));
            }
        }
    }
    if total > MAX_WORKGROUP_BYTES {
        found.push(faults::workgroup_bytes(total).at(DeclarationSpans(program).header()));
    }
}

fn lengths(program: &Program, ids: &HashMap<Name, BufferId>, found: &mut Found) -> Vec<KernelBuffer> {
    let mut buffers = Vec::new();
    for (index, decl) in program.buffers().iter().enumerate() {
        let mut len_of = None;
        if let Some(other) = &decl.len_of {
            let at = DeclarationSpans(program).buffer(index);
            if decl.access != Access::Output {
                found.push(faults::length_taker(decl).at(at));
            } else if decl.count > 0 {
                found.push(faults::count_and_length(&decl.name).at(at));
            } else {
                let what = format!("`{}`", decl.name);
                len_of =
                    bound_buffer(program, ids, &what, other).map_err(|fault| found.push(fault.at(at))).ok();
            }
        }
        let length = decl.length.as_ref().and_then(|length| {
            let at = DeclarationSpans(program).buffer(index);
            if decl.access != Access::Output {
                found.push(faults::length_taker(decl).at(at));
                return None;
            }
            if decl.len_of.is_some() {
                found.push(faults::count_and_length(&decl.name).at(at));
                return None;
            }
            let what = format!("the length of `{}`", decl.name);
            let resolver = FormulaResolver { program, ids, what: &what };
            resolver.formula(length).map_err(|fault| found.push(fault.at(at))).ok()
        });
        let decl = decl.clone();
        buffers.push(KernelBuffer {
            decl,
            len_of,
            length,
            loaded: false,
            stored: false,
            atomic: false,
            broadcast: false,
        });
    }
    for index in 0..buffers.len() {
        if borrows_from_itself(&buffers, index) {
            let decl = &buffers[index].decl;
            let source = decl.len_of.as_ref().unwrap_or(&decl.name);
            let what = format!("`{}`", decl.name);
            let fault = faults::length_source(&what, source, "the chain of lengths never ends");
            found.push(fault.at(DeclarationSpans(program).buffer(index)));
        }
    }
    buffers
}

fn borrows_from_itself(buffers: &[KernelBuffer], start: usize) -> bool {
    let sources = |index: usize| {
        let mut found: Vec<BufferId> = buffers[index].len_of.into_iter().collect();
        if let Some(length) = &buffers[index].length {
            length.lengths(&mut found);
        }
        found
    };
    let mut seen = vec![false; buffers.len()];
    let mut next = sources(start);
    while let Some(id) = next.pop() {
        if id.index() == start {
            return true;
        }
        if !std::mem::replace(&mut seen[id.index()], true) {
            next.extend(sources(id.index()));
        }
    }
    false
}

pub(super) fn bound_buffer(
    program: &Program,
    ids: &HashMap<Name, BufferId>,
    what: &str,
    name: &Name,
) -> Result<BufferId, crate::diagnostics::Diagnostic> {
    match ids.get(name) {
        None => Err(faults::unknown_buffer(name, closest(name, ids.keys().map(|known| &**known)))),
        Some(id) if program.buffers()[id.index()].access == Access::Workgroup => {
            Err(faults::length_source(what, name, "it is workgroup memory"))
        }
        Some(id) => Ok(*id),
    }
}

fn domain(program: &Program, ids: &HashMap<Name, BufferId>, found: &mut Found) -> KernelDomain {
    match program.domain() {
        Domain::Counts(counts) => KernelDomain::Counts(*counts),
        Domain::LenOf(name) => match bound_buffer(program, ids, "the domain", name) {
            Ok(id) => {
                let decl = &program.buffers()[id.index()];
                if decl.access == Access::Uniform && decl.count == 1 {
                    found.push(faults::one_invocation(name).at(DeclarationSpans(program).domain()));
                }
                KernelDomain::LenOf(id)
            }
            Err(fault) => {
                found.push(fault.at(DeclarationSpans(program).header()));
                KernelDomain::Counts([1, 1, 1])
            }
        },
        Domain::Axes(axes) => {
            let resolver = FormulaResolver { program, ids, what: "the domain" };
            let mut resolved = [const { Known::Const(Value::U32(1)) }; 3];
            for (known, axis) in resolved.iter_mut().zip(axes) {
                match resolver.axis(axis) {
                    Ok(size) => *known = size,
                    Err(fault) => found.push(fault.at(DeclarationSpans(program).domain())),
                }
            }
            KernelDomain::Axes(resolved)
        }
        Domain::Default => {
            let first = |access: Access| {
                let with_access =
                    program.buffers().iter().enumerate().filter(move |(_, b)| b.access == access);
                with_access.min_by_key(|(_, decl)| decl.binding).map(|(index, _)| BufferId(index as u32))
            };
            first(Access::Output)
                .or_else(|| first(Access::ReadWrite))
                .map_or(KernelDomain::Counts([1, 1, 1]), KernelDomain::LenOf)
        }
    }
}

fn function_names(program: &Program, found: &mut Found) -> HashMap<Name, usize> {
    let mut ids = HashMap::new();
    for (index, function) in program.functions().iter().enumerate() {
        if ids.contains_key(&function.name) {
            found.push(
                faults::duplicate_name(&function.name, "a function")
                    .at(DeclarationSpans(program).function(index)),
            );
        } else {
            ids.insert(function.name.clone(), index);
        }
    }
    ids
}

/// Reports recursive functions, direct or indirect, and returns for each function whether its calls
/// terminate.
fn finite_functions(program: &Program, ids: &HashMap<Name, usize>, found: &mut Found) -> Vec<bool> {
    let calls: Vec<Vec<usize>> = program
        .functions()
        .iter()
        .map(|function| {
            let mut called = Vec::new();
            let mut on_expr = |expr: &Expr| {
                if let Expr::Call(name, _) = expr
                    && let Some(&id) = ids.get(name)
                {
                    called.push(id);
                }
            };
            walk_block(&function.body, &mut |_| {}, &mut on_expr);
            walk_expr(&function.value, &mut on_expr);
            called.sort_unstable();
            called.dedup();
            called
        })
        .collect();
    let mut search = CycleSearch { state: vec![Visit::New; calls.len()], calls: &calls, cycles: Vec::new() };
    for start in 0..calls.len() {
        search.run(start);
    }
    for cycle in &search.cycles {
        let mut names: Vec<&str> = cycle.iter().map(|&id| &*program.functions()[id].name).collect();
        names.push(names[0]);
        found.push(faults::recursion(&names).at(DeclarationSpans(program).function(cycle[0])));
    }
    search.state.iter().map(|visit| *visit == Visit::Finite).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    New,
    Active,
    Finite,
    Endless,
}

/// Depth-first search over calls with an explicit stack: a call chain can exceed the machine stack.
struct CycleSearch<'a> {
    calls: &'a [Vec<usize>],
    state: Vec<Visit>,
    cycles: Vec<Vec<usize>>,
}

impl CycleSearch<'_> {
    fn run(&mut self, start: usize) {
        if self.state[start] != Visit::New {
            return;
        }
        self.state[start] = Visit::Active;
        let mut path = vec![(start, 0)];
        while let Some((function, next)) = path.last_mut() {
            let (function, position) = (*function, *next);
            *next += 1;
            match self.calls[function].get(position) {
                Some(&called) => match self.state[called] {
                    Visit::New => {
                        self.state[called] = Visit::Active;
                        path.push((called, 0));
                    }
                    Visit::Active => {
                        let from = path.iter().position(|&(id, _)| id == called).unwrap_or(0);
                        self.cycles.push(path[from..].iter().map(|&(id, _)| id).collect());
                    }
                    Visit::Finite | Visit::Endless => {}
                },
                None => {
                    let in_cycle = self.cycles.iter().any(|cycle| cycle.contains(&function));
                    let endless = self.calls[function].iter().any(|&id| self.state[id] == Visit::Endless);
                    self.state[function] = if in_cycle || endless { Visit::Endless } else { Visit::Finite };
                    path.pop();
                }
            }
        }
    }
}
