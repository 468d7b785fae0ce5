//! Analysis of a function before it is lowered.

use naga::{Block, Expression, Function, Handle, LocalVariable, Statement};
use std::collections::{HashMap, HashSet};

/// Facts about a function.
#[derive(Clone, Default)]
pub(super) struct Facts {
    /// Stores that are the first use of a variable, in the block that contains all its uses: the
    /// variable is declared there. Keyed by the address of the statement.
    pub(super) declarations: HashMap<*const Statement, Handle<LocalVariable>>,
    /// Variables with such a store.
    pub(super) declared_late: HashSet<Handle<LocalVariable>>,
    /// Values used in code that can be written out several times: the ends of iterations, and cases
    /// that fall through.
    pub(super) repeated: HashSet<Handle<Expression>>,
    /// Number of loads of each variable.
    pub(super) loads: HashMap<Handle<LocalVariable>, usize>,
    /// Number of stores to each variable as a whole.
    pub(super) stores: HashMap<Handle<LocalVariable>, usize>,
}

/// Kind of exit from a loop, switch or function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    Break,
    Return,
}

impl Facts {
    pub(super) fn of(function: &Function) -> Facts {
        let mut walk = Walk {
            function,
            facts: Facts::default(),
            path: Vec::new(),
            seen: HashMap::new(),
            emitted_again: HashSet::new(),
        };
        walk.block(&function.body, false);
        let Walk { mut facts, seen, emitted_again, .. } = walk;
        facts.repeated.retain(|handle| !emitted_again.contains(handle));
        for (local, seen) in seen {
            if let Some(store) = seen.first_store
                && seen.common == seen.first_path
            {
                facts.declarations.insert(store, local);
                facts.declared_late.insert(local);
            }
        }
        facts
    }
}

/// The uses of a variable so far.
struct Seen {
    first_path: Vec<(usize, usize)>,
    first_store: Option<*const Statement>,
    /// The innermost block that contains all of them.
    common: Vec<(usize, usize)>,
}

struct Walk<'m> {
    function: &'m Function,
    facts: Facts,
    /// Enclosing blocks, each as the index of a statement and of the block within it.
    path: Vec<(usize, usize)>,
    seen: HashMap<Handle<LocalVariable>, Seen>,
    /// Values that are evaluated again each time.
    emitted_again: HashSet<Handle<Expression>>,
}

impl Walk<'_> {
    fn block(&mut self, block: &Block, repeated: bool) {
        for (index, statement) in block.iter().enumerate() {
            self.statement(index, statement, repeated);
        }
    }

    fn inside(&mut self, index: usize, which: usize, block: &Block, repeated: bool) {
        self.path.push((index, which));
        self.block(block, repeated);
        self.path.pop();
    }

    fn statement(&mut self, index: usize, statement: &Statement, repeated: bool) {
        for handle in operands(self.function, statement) {
            if repeated {
                self.facts.repeated.insert(handle);
            }
            if let Some(local) = local_root(self.function, handle) {
                self.seen(local, statement, handle);
            }
        }
        if let Statement::Emit(range) = statement {
            for handle in range.clone() {
                if repeated {
                    self.emitted_again.insert(handle);
                }
                if let Expression::Load { pointer } = self.function.expressions[handle]
                    && let Some(local) = local_root(self.function, pointer)
                {
                    *self.facts.loads.entry(local).or_insert(0) += 1;
                }
            }
        }
        match statement {
            Statement::Block(block) => self.inside(index, 0, block, repeated),
            Statement::If { accept, reject, .. } => {
                self.inside(index, 0, accept, repeated);
                self.inside(index, 1, reject, repeated);
            }
            Statement::Switch { cases, .. } => {
                let falls = cases.iter().any(|case| case.fall_through);
                for (which, case) in cases.iter().enumerate() {
                    self.inside(index, which, &case.body, repeated || falls);
                }
            }
            Statement::Loop { body, continuing, break_if } => {
                // The end of an iteration sees the body's declarations.
                self.inside(index, 0, body, repeated);
                self.inside(index, 0, continuing, true);
                if let Some(condition) = break_if {
                    self.facts.repeated.insert(*condition);
                }
            }
            _ => {}
        }
    }

    fn seen(&mut self, local: Handle<LocalVariable>, statement: &Statement, handle: Handle<Expression>) {
        let whole_store = match statement {
            Statement::Store { pointer, .. } => {
                *pointer == handle
                    && matches!(self.function.expressions[handle], Expression::LocalVariable(_))
            }
            _ => false,
        };
        if whole_store {
            *self.facts.stores.entry(local).or_insert(0) += 1;
        }
        let path = &self.path;
        let seen = self.seen.entry(local).or_insert_with(|| Seen {
            first_path: path.clone(),
            first_store: whole_store.then_some(std::ptr::from_ref(statement)),
            common: path.clone(),
        });
        let shared = seen.common.iter().zip(path).take_while(|(a, b)| a == b).count();
        seen.common.truncate(shared);
    }
}

/// The local variable that a pointer refers to.
pub(super) fn local_root(
    function: &Function,
    mut pointer: Handle<Expression>,
) -> Option<Handle<LocalVariable>> {
    loop {
        match function.expressions[pointer] {
            Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => pointer = base,
            Expression::LocalVariable(local) => return Some(local),
            _ => return None,
        }
    }
}

/// Expressions that a statement refers to; for an `Emit`, those that the emitted ones refer to.
pub(super) fn operands(function: &Function, statement: &Statement) -> Vec<Handle<Expression>> {
    match statement {
        Statement::Emit(range) => {
            range.clone().flat_map(|handle| arguments(&function.expressions[handle])).collect()
        }
        Statement::If { condition, .. } => vec![*condition],
        Statement::Switch { selector, .. } => vec![*selector],
        Statement::Loop { break_if, .. } => break_if.iter().copied().collect(),
        Statement::Return { value } => value.iter().copied().collect(),
        // The value comes first: it is evaluated before the store, so a variable in it is not new.
        Statement::Store { pointer, value } => vec![*value, *pointer],
        Statement::Atomic { pointer, fun, value, .. } => {
            let compare = match fun {
                naga::AtomicFunction::Exchange { compare } => *compare,
                _ => None,
            };
            [*pointer, *value].into_iter().chain(compare).collect()
        }
        Statement::WorkGroupUniformLoad { pointer, .. } => vec![*pointer],
        Statement::Call { arguments, .. } => arguments.clone(),
        Statement::SubgroupBallot { predicate, .. } => predicate.iter().copied().collect(),
        Statement::SubgroupGather { mode, argument, .. } => {
            let lane = match mode {
                naga::GatherMode::Broadcast(lane)
                | naga::GatherMode::Shuffle(lane)
                | naga::GatherMode::ShuffleDown(lane)
                | naga::GatherMode::ShuffleUp(lane)
                | naga::GatherMode::ShuffleXor(lane)
                | naga::GatherMode::QuadBroadcast(lane) => Some(*lane),
                naga::GatherMode::BroadcastFirst | naga::GatherMode::QuadSwap(_) => None,
            };
            [*argument].into_iter().chain(lane).collect()
        }
        Statement::SubgroupCollectiveOperation { argument, .. } => vec![*argument],
        Statement::Block(_)
        | Statement::Break
        | Statement::Continue
        | Statement::Kill
        | Statement::ControlBarrier(_)
        | Statement::MemoryBarrier(_)
        | Statement::ImageStore { .. }
        | Statement::ImageAtomic { .. }
        | Statement::RayQuery { .. }
        | Statement::RayPipelineFunction(_)
        | Statement::CooperativeStore { .. } => Vec::new(),
    }
}

/// Operands of an expression.
pub(super) fn arguments(expression: &Expression) -> Vec<Handle<Expression>> {
    match *expression {
        Expression::Compose { ref components, .. } => components.clone(),
        Expression::Access { base, index } => vec![base, index],
        Expression::AccessIndex { base, .. } => vec![base],
        Expression::Splat { value, .. } => vec![value],
        Expression::Swizzle { vector, .. } => vec![vector],
        Expression::Load { pointer } => vec![pointer],
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => vec![expr],
        Expression::Binary { left, right, .. } => vec![left, right],
        Expression::Select { condition, accept, reject } => vec![condition, accept, reject],
        Expression::Relational { argument, .. } => vec![argument],
        Expression::Math { arg, arg1, arg2, arg3, .. } => {
            [arg].into_iter().chain(arg1).chain(arg2).chain(arg3).collect()
        }
        Expression::ArrayLength(array) => vec![array],
        _ => Vec::new(),
    }
}

/// Whether a list of statements contains such an exit from the enclosing construct.
pub(super) fn has_exit(statements: &[Statement], exit: Exit) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Break => exit == Exit::Break,
        Statement::Return { .. } => exit == Exit::Return,
        Statement::Block(block) => has_exit(block, exit),
        Statement::If { accept, reject, .. } => has_exit(accept, exit) || has_exit(reject, exit),
        Statement::Loop { body, continuing, .. } => {
            exit == Exit::Return && (has_exit(body, exit) || has_exit(continuing, exit))
        }
        Statement::Switch { cases, .. } => {
            exit == Exit::Return && cases.iter().any(|case| has_exit(&case.body, exit))
        }
        _ => false,
    })
}

/// Whether control never reaches the end of a list of statements.
pub(super) fn ends(statements: &[Statement]) -> bool {
    statements.iter().any(|statement| match statement {
        Statement::Break | Statement::Continue | Statement::Return { .. } | Statement::Kill => true,
        Statement::Block(block) => ends(block),
        Statement::If { accept, reject, .. } => ends(accept) && ends(reject),
        _ => false,
    })
}

/// Whether each exit can be written as the end of a branch, with the following code in the other
/// branch.
pub(super) fn exits_at_ends(statements: &[Statement], exit: Exit) -> bool {
    at_ends(statements, exit, true) && branches(statements, exit) <= MAX_BRANCHES
}

/// `last` means that nothing follows the statements.
fn at_ends(statements: &[Statement], exit: Exit, last: bool) -> bool {
    let fits = |(index, statement): (usize, &Statement)| {
        let last = last && index + 1 == statements.len();
        match statement {
            Statement::Block(block) => at_ends(block, exit, last),
            Statement::If { accept, reject, .. } if has_exit(accept, exit) || has_exit(reject, exit) => {
                let (accept_ends, reject_ends) = (ends(accept), ends(reject));
                (last || accept_ends || reject_ends)
                    && at_ends(accept, exit, last || accept_ends)
                    && at_ends(reject, exit, last || reject_ends)
            }
            Statement::Loop { .. } | Statement::Switch { .. } => {
                !has_exit(std::slice::from_ref(statement), exit)
            }
            _ => true,
        }
    };
    statements.iter().enumerate().all(fits)
}

/// Maximum number of branches with exits; more would nest too deep. The shaders of
/// `filetests/import` have at most 2.
const MAX_BRANCHES: usize = 24;

fn branches(statements: &[Statement], exit: Exit) -> usize {
    let count = |statement: &Statement| match statement {
        Statement::Block(block) => branches(block, exit),
        Statement::If { accept, reject, .. } if has_exit(std::slice::from_ref(statement), exit) => {
            1 + branches(accept, exit) + branches(reject, exit)
        }
        _ => 0,
    };
    statements.iter().map(count).sum()
}
