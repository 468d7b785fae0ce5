//! The generator's guarantees: every program is valid, and together they cover the language.

use std::collections::BTreeSet;
use vyre_conform::generate::{Generator, Options};
use vyre_foundation::ir::{Expr, Function, Node, Op, Program, ValueType, walk_block, walk_expr};
use vyre_foundation::kernel::{Def, KernelBody, Stmt, StmtKind};
use vyre_foundation::ops::{AtomicOp, SubgroupOp};
use vyre_foundation::optimize::{Schedule, iteration_bound, optimize};

const PROGRAMS: u64 = 3000;

fn small() -> Options {
    Options {
        int64: false,
        f64: false,
        f16: false,
        bf16: false,
        narrow: false,
        atomic64: false,
        ..no_groups()
    }
}

fn no_groups() -> Options {
    Options { subgroups: false, shuffles: false, grouped: false, traps: false, ..Options::default() }
}

#[test]
fn every_program_is_valid() {
    for options in [Options::default(), no_groups(), small()] {
        let generator = Generator::new(options);
        // The second seed range has functions whose private arrays decide about barriers: uniform
        // if every stored value is.
        for seed in (0..PROGRAMS).chain(1_000_000..1_000_000 + PROGRAMS) {
            let case = generator.from_seed(seed);
            if let Err(faults) = case.program.validate() {
                panic!("seed {seed} of {:?}:\n{faults}", generator.options());
            }
        }
    }
}

/// Features seen in the programs of one generator.
#[derive(Default)]
struct Seen {
    ops: BTreeSet<(Op, Vec<ValueType>)>,
    atomics: BTreeSet<(AtomicOp, ValueType)>,
    subgroup: BTreeSet<(SubgroupOp, Option<ValueType>)>,
    nodes: BTreeSet<&'static str>,
    exprs: BTreeSet<&'static str>,
    elements: BTreeSet<(&'static str, &'static str)>,
    traits: BTreeSet<&'static str>,
}

impl Seen {
    fn program(&mut self, program: &Program) {
        let Seen { nodes, exprs, .. } = self;
        walk_block(program.entry(), &mut |node| _ = nodes.insert(node_kind(node)), &mut |expr| {
            exprs.insert(expr_kind(expr));
        });
        for Function { body, value, .. } in program.functions() {
            walk_block(body, &mut |node| _ = nodes.insert(node_kind(node)), &mut |expr| {
                exprs.insert(expr_kind(expr));
            });
            walk_expr(value, &mut |expr| _ = exprs.insert(expr_kind(expr)));
        }
        for buffer in program.buffers() {
            self.elements.insert((buffer.access.name(), buffer.element.name()));
        }
        let kernel = program.validate().expect("generated programs are valid");
        self.traits.insert(if kernel.shape_free { "shape-free" } else { "shaped" });
        self.stmts(&kernel, &kernel.body);
    }

    fn stmts(&mut self, kernel: &KernelBody, stmts: &[Stmt]) {
        for stmt in stmts {
            match &stmt.kind {
                StmtKind::Def(_, def) => self.def(kernel, def),
                StmtKind::If { then, otherwise, .. } => {
                    self.stmts(kernel, then);
                    self.stmts(kernel, otherwise);
                }
                StmtKind::For { body, .. } | StmtKind::Loop(body) | StmtKind::Region { body, .. } => {
                    self.stmts(kernel, body);
                }
                StmtKind::Set(..)
                | StmtKind::Clear(_)
                | StmtKind::Store { .. }
                | StmtKind::Break
                | StmtKind::Continue
                | StmtKind::Return
                | StmtKind::Barrier
                | StmtKind::Trap(_) => {}
            }
        }
    }

    fn def(&mut self, kernel: &KernelBody, def: &Def) {
        match def {
            Def::Op(op, operands) => {
                let types = operands.iter().map(|&operand| kernel.ty(operand)).collect();
                self.ops.insert((*op, types));
            }
            Def::Atomic { op, buffer, .. } => {
                self.atomics.insert((*op, kernel.buffer(*buffer).decl.element.value_type()));
            }
            Def::Subgroup(op, operands) => {
                self.subgroup.insert((*op, operands.first().map(|&operand| kernel.ty(operand))));
            }
            Def::Const(_) | Def::Get(_) | Def::Load { .. } | Def::Len(_) | Def::Builtin(..) => {}
        }
    }
}

fn node_kind(node: &Node) -> &'static str {
    match node {
        Node::Let { .. } => "let",
        Node::Array { .. } => "array",
        Node::Assign { .. } => "assign",
        Node::Store { .. } => "store",
        Node::Eval(_) => "eval",
        Node::If { .. } => "if",
        Node::For { .. } => "for",
        Node::While { .. } => "while",
        Node::Break => "break",
        Node::Continue => "continue",
        Node::Return => "return",
        Node::Barrier => "barrier",
        Node::Block(_) => "block",
        Node::Region { .. } => "region",
        Node::Trap(_) => "trap",
        Node::Print { .. } => "print",
        Node::Assert { .. } => "assert",
    }
}

fn expr_kind(expr: &Expr) -> &'static str {
    match expr {
        Expr::Literal(_) => "literal",
        Expr::Var(_) => "var",
        Expr::Builtin(..) => "builtin",
        Expr::BufLen(_) => "len",
        Expr::Load(..) => "load",
        Expr::Op(..) => "op",
        Expr::Atomic(..) => "atomic",
        Expr::Subgroup(..) => "subgroup",
        Expr::Workgroup(..) => "workgroup",
        Expr::Call(..) => "call",
    }
}

fn seen(options: Options) -> Seen {
    let generator = Generator::new(options);
    let mut seen = Seen::default();
    for seed in 0..PROGRAMS {
        seen.program(&generator.from_seed(seed).program);
    }
    seen
}

/// Every list of operand types that an op takes.
fn forms(arity: usize, result: impl Fn(&[ValueType]) -> Option<ValueType>) -> Vec<Vec<ValueType>> {
    let mut lists: Vec<Vec<ValueType>> = vec![Vec::new()];
    for _ in 0..arity {
        lists = lists
            .iter()
            .flat_map(|list| ValueType::ALL.map(|ty| list.iter().copied().chain([ty]).collect()))
            .collect();
    }
    lists.retain(|list| result(list).is_some());
    lists
}

#[test]
fn programs_reach_everything() {
    let seen = seen(Options::default());
    for &op in Op::ALL {
        let signature = op.row().signature;
        for types in forms(signature.arity(), |types| signature.result(types)) {
            assert!(seen.ops.contains(&(op, types.clone())), "no program uses {op:?} on {types:?}");
        }
    }
    for op in AtomicOp::ALL {
        for ty in ValueType::ALL.into_iter().filter(|ty| ty.is_integer()) {
            assert!(seen.atomics.contains(&(op, ty)), "no program uses atomic {op:?} on {ty}");
        }
    }
    for op in SubgroupOp::all() {
        for types in forms(op.row().arity, |types| op.result(types)) {
            let used = seen.subgroup.contains(&(op, types.first().copied()));
            assert!(used, "no program uses subgroup {op:?} on {types:?}");
        }
    }
    assert_eq!(seen.nodes.len(), 15, "{:?}", seen.nodes);
    assert_eq!(seen.exprs.len(), 10, "{:?}", seen.exprs);
    // Five accesses, thirteen storage types.
    assert_eq!(seen.elements.len(), 5 * 13, "{:?}", seen.elements);
    assert_eq!(seen.traits.len(), 2, "{:?}", seen.traits);
}

#[test]
fn options_keep_out_what_a_backend_lacks() {
    let seen = seen(small());
    let lacking = |ty: &ValueType| matches!(ty, ValueType::U64 | ValueType::I64 | ValueType::F64);
    assert!(!seen.ops.iter().any(|(_, types)| types.iter().any(lacking)));
    assert!(seen.subgroup.is_empty() && !seen.nodes.contains("barrier") && !seen.nodes.contains("trap"));
    assert_eq!(seen.traits, BTreeSet::from(["shape-free"]));
    let elements: BTreeSet<&str> = seen.elements.iter().map(|(_, element)| *element).collect();
    assert_eq!(elements, BTreeSet::from(["u32", "i32", "f32"]));
}

/// Devices that limit loops refuse those that are not proved short, so nearly all programs must be,
/// optimized or not.
#[test]
fn loops_of_generated_programs_are_proved_to_be_short() {
    let generator = Generator::new(Options::default());
    for schedule in [Schedule::none(), Schedule::quick(), Schedule::full()] {
        let short = |seed: &u64| {
            let kernel = generator.from_seed(*seed).program.validate().expect("generated programs are valid");
            let kernel = optimize(kernel, &schedule);
            iteration_bound(&kernel).is_some_and(|bound| bound < 65_536)
        };
        let proved = (0..400).filter(short).count();
        assert!(proved >= 396, "only {proved} of 400 after {:?}", schedule.passes);
    }
}
