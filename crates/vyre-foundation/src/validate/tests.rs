//! Cases that only Rust can express; every code has a filetest as well.

use crate::ir::{AtomicOp, Block, BufferDecl, DataType, Expr, Function, Node, Op, Program, ValueType};

fn codes(program: &Program) -> Vec<&'static str> {
    match program.validate() {
        Ok(kernel) => kernel.warnings.iter().map(|item| item.code.as_str()).collect(),
        Err(found) => found.iter().map(|item| item.code.as_str()).collect(),
    }
}

fn check(body: Vec<Node>, expected: &[&str]) {
    let buffers = vec![
        BufferDecl::read("x", 0, DataType::F32),
        BufferDecl::read_write("y", 1, DataType::U32),
        BufferDecl::workgroup("tile", 64, DataType::U32),
    ];
    let keep = Node::region(
        "keep",
        vec![
            Node::let_("used", Expr::load("x", 0u32).lt(1.0f32)),
            Node::store("y", 0u32, 1u32),
            Node::store("tile", 0u32, 1u32),
        ],
    );
    let program = Program::new(buffers, [64, 1, 1], vec![keep, Node::region("test", body)]);
    assert_eq!(codes(&program), expected, "{program:?}");
}

#[test]
fn barriers_need_uniform_control_flow() {
    let varying = || Expr::local_id(0).lt(3u32);
    let uniform = || Expr::workgroup_id(0).lt(3u32);
    check(vec![Node::if_(uniform(), vec![Node::Barrier])], &[]);
    check(vec![Node::if_(varying(), vec![Node::Barrier])], &["V015"]);
    check(vec![Node::if_(varying(), vec![Node::Return]), Node::Barrier], &["V015"]);
    check(vec![Node::if_(uniform(), vec![Node::Return]), Node::Barrier], &[]);
    // A variable assigned in divergent control flow varies, whatever the value.
    let diverging = |value: u32| {
        vec![
            Node::let_("m", 0u32),
            Node::if_(varying(), vec![Node::assign("m", value)]),
            Node::if_(Expr::var("m").equals(0u32), vec![Node::Barrier]),
        ]
    };
    check(diverging(1), &["V015"]);
    // The value reaches the barrier only in the second iteration.
    let second_round = vec![
        Node::let_("m", 0u32),
        Node::for_range(
            "k",
            0u32,
            4u32,
            vec![
                Node::if_(Expr::var("m").equals(0u32), vec![Node::Barrier]),
                Node::assign("m", Expr::local_id(0)),
            ],
        ),
    ];
    check(second_round, &["V015"]);
}

#[test]
fn exits_diverge_what_they_can_skip() {
    let varying = || Expr::local_id(0).lt(3u32);
    let looped = |body: Vec<Node>| Node::for_range("k", 0u32, 4u32, body);
    // A continue skips only the rest of the iteration.
    check(vec![looped(vec![Node::Barrier, Node::if_(varying(), vec![Node::Continue])])], &[]);
    check(vec![looped(vec![Node::if_(varying(), vec![Node::Continue]), Node::Barrier])], &["V015"]);
    // A break skips later iterations too, but not what follows the loop.
    check(vec![looped(vec![Node::Barrier, Node::if_(varying(), vec![Node::Break])])], &["V015"]);
    check(vec![looped(vec![Node::if_(varying(), vec![Node::Break])]), Node::Barrier], &[]);
    // A return skips everything.
    check(vec![looped(vec![Node::Barrier, Node::if_(varying(), vec![Node::Return])])], &["V015"]);
    check(vec![looped(vec![Node::if_(varying(), vec![Node::Return])]), Node::Barrier], &["V015"]);
    check(vec![Node::for_range("k", 0u32, Expr::local_id(0), vec![Node::Barrier])], &["V015"]);
}

#[test]
fn one_mistake_makes_one_message() {
    let body = vec![
        Node::let_("a", Expr::var("nowhere") + 1u32),
        Node::let_("b", Expr::var("a") * 2u32),
        Node::assign("b", Expr::var("a")),
        Node::store("y", Expr::var("b"), Expr::var("a")),
    ];
    check(body, &["V001"]);
}

#[test]
fn all_faults_come_at_once() {
    let body = vec![
        Node::store("x", 0u32, 1.0f32),
        Node::store("y", 0u32, 1.0f32),
        Node::store("y", 0i32, 1u32),
        Node::Break,
        Node::if_(1u32, vec![]),
        Node::eval(Expr::atomic(AtomicOp::Add, "x", 0u32, 1u32)),
        Node::eval(Expr::invocation_id(3)),
        Node::eval(Expr::op(Op::Add, [Expr::u32(1)])),
    ];
    check(body, &["V012", "V010", "V011", "V021", "V007", "V012", "V024", "V006"]);
}

#[test]
fn depth_is_bounded_however_the_tree_was_built() {
    let mut sum = Expr::u32(0);
    for _ in 0..100_000 {
        sum = sum + 1u32;
    }
    check(vec![Node::store("y", 0u32, sum)], &["V019"]);
    let mut block = vec![Node::Barrier];
    for _ in 0..100_000 {
        block = vec![Node::block(block)];
    }
    check(block, &["V019"]);
    // The deepest nesting allowed, on the default stack of a spawned thread.
    let mut deep = Expr::u32(0);
    for _ in 0..crate::ir::MAX_EXPR_DEPTH {
        deep = deep + 1u32;
    }
    let mut nested = vec![Node::store("y", 0u32, deep)];
    for _ in 0..crate::ir::MAX_BLOCK_DEPTH - 3 {
        nested = vec![Node::block(nested)];
    }
    check(nested, &[]);
}

fn function(name: &str, params: &[(&str, ValueType)], body: Vec<Node>, value: Expr) -> Function {
    let params = params.iter().map(|&(name, ty)| (name.into(), ty)).collect();
    Function { name: name.into(), params, result: ValueType::U32, body: Block::new(body), value }
}

fn with_functions(functions: Vec<Function>, value: Expr) -> Program {
    let buffers = vec![BufferDecl::read_write("y", 0, DataType::U32)];
    let body = vec![Node::store("y", 0u32, value)];
    Program::wrapped(buffers, [1, 1, 1], body).with_functions(functions)
}

#[test]
fn functions_are_inlined_within_limits() {
    let u32 = ValueType::U32;
    let call = |name: &str, arg: Expr| Expr::call(name, [arg]);
    let double = function("double", &[("v", u32)], vec![], Expr::var("v") + Expr::var("v"));
    assert_eq!(codes(&with_functions(vec![double], call("double", Expr::u32(2)))), [""; 0]);
    // Each calls the previous one twice: 2^40 values if all were inlined.
    let mut functions = vec![function("f0", &[("v", u32)], vec![], Expr::var("v") + 1u32)];
    for k in 1..40 {
        let below = format!("f{}", k - 1);
        let value = call(&below, call(&below, Expr::var("v")));
        functions.push(function(&format!("f{k}"), &[("v", u32)], vec![], value));
    }
    assert_eq!(codes(&with_functions(functions, call("f39", Expr::u32(2)))), ["V020"]);
    // A call chain too long for the stack.
    let mut functions = vec![function("f0", &[("v", u32)], vec![], Expr::var("v") + 1u32)];
    for k in 1..20_000 {
        let value = call(&format!("f{}", k - 1), Expr::var("v"));
        functions.push(function(&format!("f{k}"), &[("v", u32)], vec![], value));
    }
    assert_eq!(codes(&with_functions(functions, call("f19999", Expr::u32(2)))), ["V019"]);
    let odd = function("odd", &[("v", u32)], vec![], call("even", Expr::var("v")));
    let even = function("even", &[("v", u32)], vec![], call("odd", Expr::var("v")));
    assert_eq!(codes(&with_functions(vec![odd, even], call("odd", Expr::u32(2)))), ["V018"]);
}

#[test]
fn contract_programs_validate() {
    assert!(Program::empty().validate().is_ok());
    assert_eq!(Program::empty(), Program::default());
    let raw = Program::new(Vec::new(), [1, 1, 1], vec![Node::Return]);
    let message = raw.validate().err().map(|found| found.to_string()).unwrap_or_default();
    assert!(message.contains("top-level Region-wrapped Program"), "{message}");
}
