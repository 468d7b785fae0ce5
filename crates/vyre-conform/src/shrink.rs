//! Shrinks a failing case: tries simpler programs and inputs for as long as the failure persists.
//!
//! Every step is a list of candidates derived from the current case; the first that is still valid
//! and still fails becomes the current case, and the step starts over. The search ends when no step
//! finds anything, or when the attempts are used up. Sizes go first, since they make every further
//! attempt cheap, then statements, since they remove the most, then expressions and inputs.

use crate::generate::Case;
use crate::metamorphic::with_body;
use crate::outcome::given_buffers;
use vyre_foundation::ir::{
    Access, Block, BufferDecl, Domain, Expr, Function, Node, Program, Value, ValueType, rewrite_block,
    rewrite_expr,
};
use vyre_foundation::launch::{Launch, Overrides};

/// Maximum number of calls to `fails`.
const ATTEMPTS: u32 = 4000;

/// The smallest case found that still fails. `fails` is called with valid programs only.
pub fn shrink(case: &Case, fails: &mut dyn FnMut(&Case) -> bool) -> Case {
    let mut search = Search { best: case.clone(), attempts: ATTEMPTS, fails };
    loop {
        let before = search.attempts;
        let progress = [
            search.sizes(),
            search.statements(),
            search.unwrap_blocks(),
            search.functions(),
            search.buffers(),
            search.expressions(),
            search.inputs(),
        ];
        if !progress.contains(&true) || search.attempts == 0 || search.attempts == before {
            return search.best;
        }
    }
}

struct Search<'a> {
    best: Case,
    attempts: u32,
    fails: &'a mut dyn FnMut(&Case) -> bool,
}

impl Search<'_> {
    /// Adopts the candidate if it still fails.
    fn keep(&mut self, candidate: Case) -> bool {
        if self.attempts == 0 || candidate == self.best || candidate.program.validate().is_err() {
            return false;
        }
        self.attempts -= 1;
        let fails = (self.fails)(&candidate);
        if fails {
            self.best = candidate;
        }
        fails
    }

    fn keep_program(&mut self, program: Program) -> bool {
        let candidate = Case { program, ..self.best.clone() };
        self.keep(candidate)
    }

    /// Tries `edit` on every position from last to first: in post-order the last ones contain the
    /// most. The second number enumerates the alternatives at a position until there are none.
    fn each(
        &mut self,
        count: usize,
        mut edit: impl FnMut(&Program, usize, usize) -> Option<Program>,
    ) -> bool {
        let mut progress = false;
        for at in (0..count).rev() {
            let mut alternative = 0;
            while self.attempts > 0
                && let Some(candidate) = edit(&self.best.program, at, alternative)
            {
                alternative += 1;
                if self.keep_program(candidate) {
                    progress = true;
                    break;
                }
            }
        }
        progress
    }

    fn statements(&mut self) -> bool {
        let count = count_nodes(&self.best.program);
        // Runs of statements first: most of a program is unrelated to its failure.
        let mut progress = false;
        for size in [16, 4, 1] {
            progress |= self.each(count.div_ceil(size), |program, at, alternative| {
                let removed = |k, node| if k / size == at { Vec::new() } else { vec![node] };
                (alternative == 0).then(|| edit_nodes(program, removed))
            });
        }
        progress
    }

    fn unwrap_blocks(&mut self) -> bool {
        let count = count_nodes(&self.best.program);
        self.each(count, |program, at, alternative| {
            let unwrapped = |k, node: Node| {
                let block = node.blocks().get(alternative).map(|block| block.to_vec());
                match block {
                    Some(block) if k == at => block,
                    Some(_) | None => vec![node],
                }
            };
            (alternative < 2).then(|| edit_nodes(program, unwrapped))
        })
    }

    fn expressions(&mut self) -> bool {
        let count = count_exprs(&self.best.program);
        let literals: Vec<Value> =
            ValueType::ALL.into_iter().flat_map(|ty| [Value::zero(ty), Value::one(ty)]).collect();
        self.each(count, |program, at, alternative| {
            // Replace an expression by one of its operands, then by literals.
            let Some(literal) = alternative.checked_sub(3) else {
                return Some(edit_exprs(program, |k, expr| {
                    let inner = expr.args().get(alternative).cloned();
                    if k == at { inner.unwrap_or(expr) } else { expr }
                }));
            };
            let &value = literals.get(literal)?;
            Some(edit_exprs(program, |k, expr| {
                if k == at && is_simplified_by(&expr, value) { Expr::Literal(value) } else { expr }
            }))
        })
    }

    fn functions(&mut self) -> bool {
        let count = self.best.program.functions().len();
        self.each(count, |program, at, alternative| {
            let mut functions = program.functions().to_vec();
            functions.remove(at);
            (alternative == 0).then(|| program.clone().with_functions(functions))
        })
    }

    /// Drops unused buffers together with their inputs.
    fn buffers(&mut self) -> bool {
        let mut progress = false;
        for at in (0..self.best.program.buffers().len()).rev() {
            let dropped = self.best.program.buffers()[at].clone();
            let mut decls = self.best.program.buffers().to_vec();
            decls.remove(at);
            let given: Vec<bool> =
                given_buffers(&self.best.program).iter().map(|decl| decl.name != dropped.name).collect();
            let mut inputs = self.best.inputs.clone();
            let mut keep = given.into_iter();
            inputs.retain(|_| keep.next().unwrap_or(true));
            let program = with_buffers(&self.best.program, decls);
            progress |= self.keep(Case { program, inputs, ..self.best.clone() });
        }
        progress
    }

    fn sizes(&mut self) -> bool {
        let mut progress = false;
        let program = &self.best.program;
        let mut candidates = vec![
            program.clone().with_workgroup_size([1, 1, 1]),
            program.clone().with_domain(Domain::Counts([1, 1, 1])),
            program.clone().with_domain(Domain::Default),
        ];
        if let &Domain::Counts(counts) = program.domain() {
            for axis in 0..3 {
                let mut fewer = counts;
                fewer[axis] = counts[axis] / 2;
                candidates.push(program.clone().with_domain(Domain::Counts(fewer)));
            }
        }
        candidates.extend(self.fixed_domain());
        let halved = program.workgroup_size().map(|size| (size / 2).max(1));
        candidates.push(program.clone().with_workgroup_size(halved));
        for candidate in candidates {
            // Never back from a count to the default: the two would alternate forever.
            let explicit = matches!(self.best.program.domain(), Domain::Counts(_));
            if !(explicit && *candidate.domain() == Domain::Default) {
                progress |= self.keep_program(candidate);
            }
        }
        progress | self.static_counts()
    }

    /// The program with its domain formulas replaced by the counts that the dispatch computes.
    fn fixed_domain(&self) -> Option<Program> {
        let Case { program, inputs, .. } = &self.best;
        let kernel = program.validate().ok().filter(|_| matches!(program.domain(), Domain::Axes(_)))?;
        let given: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let domain = Launch::from_inputs(&kernel, &given, Overrides::default()).ok()?.domain?;
        Some(program.clone().with_domain(Domain::Counts(domain)))
    }

    fn static_counts(&mut self) -> bool {
        let mut progress = false;
        for at in 0..self.best.program.buffers().len() {
            let decl = &self.best.program.buffers()[at];
            if decl.access.is_input() || decl.count < 2 {
                continue;
            }
            let mut decls = self.best.program.buffers().to_vec();
            decls[at].count /= 2;
            let program = with_buffers(&self.best.program, decls);
            progress |= self.keep_program(program);
        }
        progress
    }

    /// Shorter inputs, then zeros.
    fn inputs(&mut self) -> bool {
        let mut progress = false;
        let decls: Vec<BufferDecl> = given_buffers(&self.best.program).into_iter().cloned().collect();
        for (at, decl) in decls.iter().enumerate().take(self.best.inputs.len()) {
            progress |= self.shorten(at, decl);
            progress |= self.zero(at, decl.element.size());
        }
        progress
    }

    fn shorten(&mut self, at: usize, decl: &BufferDecl) -> bool {
        let mut progress = false;
        loop {
            let size = decl.element.size();
            let length = self.best.inputs[at].len() / size;
            let shorter = length / 2;
            if length < 2 || decl.access == Access::Uniform {
                return progress;
            }
            let mut candidate = self.best.clone();
            candidate.inputs[at].truncate(shorter * size);
            if decl.count > 0 {
                let decls = candidate.program.buffers().iter().cloned();
                let fewer = |other: BufferDecl| {
                    if other.name == decl.name { other.with_count(shorter as u32) } else { other }
                };
                candidate.program = with_buffers(&candidate.program, decls.map(fewer).collect());
            }
            if !self.keep(candidate) {
                return progress;
            }
            progress = true;
        }
    }

    fn zero(&mut self, at: usize, size: usize) -> bool {
        let mut all = self.best.clone();
        all.inputs[at].fill(0);
        if self.keep(all) {
            return true;
        }
        let mut progress = false;
        // Long inputs would use all attempts; what matters is mostly near the start.
        for element in 0..(self.best.inputs[at].len() / size).min(32) {
            let range = element * size..(element + 1) * size;
            if self.best.inputs[at][range.clone()].iter().any(|&byte| byte != 0) {
                let mut candidate = self.best.clone();
                candidate.inputs[at][range].fill(0);
                progress |= self.keep(candidate);
            }
        }
        progress
    }
}

/// Whether replacing the expression by the literal is progress; literals only become zero.
fn is_simplified_by(expr: &Expr, value: Value) -> bool {
    match expr {
        Expr::Literal(old) => old.ty() == value.ty() && value == Value::zero(value.ty()) && *old != value,
        Expr::Var(_)
        | Expr::Builtin(..)
        | Expr::BufLen(_)
        | Expr::Load(..)
        | Expr::Op(..)
        | Expr::Atomic(..)
        | Expr::Subgroup(..)
        | Expr::Workgroup(..)
        | Expr::Call(..) => true,
    }
}

fn with_buffers(program: &Program, buffers: Vec<BufferDecl>) -> Program {
    let fresh = Program::new(buffers, program.workgroup_size(), program.entry().to_vec())
        .with_domain(program.domain().clone())
        .with_functions(program.functions().to_vec());
    match program.name() {
        Some(name) => fresh.with_name(name.clone()),
        None => fresh,
    }
}

/// Rebuilds the program: functions in order, then the body.
fn rebuild(
    program: &Program,
    on_node: &mut dyn FnMut(Node) -> Vec<Node>,
    on_expr: &mut dyn FnMut(Expr) -> Expr,
) -> Program {
    let mut functions = Vec::new();
    for function in program.functions() {
        let body = rewrite_block(function.body.clone(), on_node, on_expr);
        let value = rewrite_expr(function.value.clone(), on_expr);
        functions.push(Function { body, value, ..function.clone() });
    }
    let body: Block = rewrite_block(program.entry().clone(), on_node, on_expr);
    with_body(program, body.into_vec()).with_functions(functions)
}

/// Replaces each statement by what `edit` returns for its number.
fn edit_nodes(program: &Program, mut edit: impl FnMut(usize, Node) -> Vec<Node>) -> Program {
    let mut at = 0;
    let mut on_node = |node| {
        at += 1;
        edit(at - 1, node)
    };
    rebuild(program, &mut on_node, &mut |expr| expr)
}

/// Replaces each expression by what `edit` returns for its number.
fn edit_exprs(program: &Program, mut edit: impl FnMut(usize, Expr) -> Expr) -> Program {
    let mut at = 0;
    let mut on_expr = |expr| {
        at += 1;
        edit(at - 1, expr)
    };
    rebuild(program, &mut |node| vec![node], &mut on_expr)
}

fn count_nodes(program: &Program) -> usize {
    let mut count = 0;
    edit_nodes(program, |_, node| {
        count += 1;
        vec![node]
    });
    count
}

fn count_exprs(program: &Program) -> usize {
    let mut count = 0;
    edit_exprs(program, |_, expr| {
        count += 1;
        expr
    });
    count
}
