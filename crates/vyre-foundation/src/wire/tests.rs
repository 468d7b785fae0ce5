//! Round trips, canonicity, totality, and the pinned bytes of one program.

use super::{WireError, body, decode, encode, framed};
use crate::ir::{
    Access, Args, AtomicOp, Block, BufferDecl, Builtin, Combine, DataType, Domain, Expr, Function,
    MAX_BLOCK_DEPTH, MAX_EXPR_DEPTH, Node, Op, Program, SubgroupOp, Value, ValueType, WorkgroupOp,
};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn saxpy() -> Program {
    let i = Expr::var("i");
    let buffers = vec![
        BufferDecl::uniform("a", 0, DataType::F32),
        BufferDecl::read("x", 1, DataType::F32),
        BufferDecl::read_write("y", 2, DataType::F32),
    ];
    let value = Expr::uniform("a") * Expr::load("x", &i) + Expr::load("y", &i);
    let store = Node::store("y", &i, value);
    let body =
        vec![Node::let_("i", Expr::invocation_id(0)), Node::if_(i.lt(Expr::buf_len("y")), vec![store])];
    Program::new(buffers, [64, 1, 1], vec![Node::region("blas.saxpy", body)])
        .with_name("saxpy")
        .with_domain(Domain::LenOf("y".into()))
}

/// A program with one of everything; it is never validated, so it need not make sense.
fn everything() -> Program {
    let literals = [
        Value::Bool(true),
        Value::U32(300),
        Value::I32(-1),
        Value::U64(u64::MAX),
        Value::I64(i64::MIN),
        Value::F32(f32::from_bits(0xFFC0_1234)),
        Value::F64(-0.0),
    ];
    let mut body: Vec<Node> = literals.into_iter().map(|value| Node::Eval(Expr::Literal(value))).collect();
    body.extend(Op::ALL.iter().map(|&op| Node::Eval(Expr::op(op, [Expr::u32(1), Expr::var("v")]))));
    body.extend(AtomicOp::ALL.map(|op| Node::Eval(Expr::atomic(op, "out", Expr::u32(0), Expr::u32(1)))));
    body.extend(SubgroupOp::all().map(|op| Node::Eval(Expr::subgroup(op, [Expr::bool(false)]))));
    body.extend(WorkgroupOp::ALL.map(|op| Node::Eval(Expr::Workgroup(op, [Expr::bool(false)].into()))));
    body.extend(Builtin::ALL.map(|builtin| Node::Eval(Expr::Builtin(builtin, 2))));
    body.extend([
        Node::let_("v", Expr::call("f", [Expr::buf_len("in")])),
        Node::array("tile", ValueType::F64, 16),
        Node::assign("v", Expr::load("in", Expr::u32(3))),
        Node::store("out", Expr::u32(0), Expr::var("v")),
        Node::If {
            condition: Expr::bool(true),
            then: vec![Node::Break].into(),
            otherwise: vec![Node::Continue, Node::Return].into(),
        },
        Node::For {
            counter: "k".into(),
            from: Expr::u32(0),
            to: Expr::u32(9),
            step: Expr::u32(2),
            body: vec![Node::Barrier].into(),
        },
        Node::while_(Expr::bool(false), vec![Node::Trap(7)]),
        Node::block(vec![Node::region("inner", vec![])]),
        Node::print("{} {}", [Expr::var("v"), Expr::u32(1)]),
        Node::assert(Expr::bool(true), "", []),
    ]);
    let function = Function {
        name: "f".into(),
        params: vec![("p".into(), ValueType::I32), ("q".into(), ValueType::Bool)],
        result: ValueType::U64,
        body: vec![Node::let_("r", Expr::var("p"))].into(),
        value: Expr::var("r"),
    };
    let mut buffers: Vec<BufferDecl> =
        DataType::ALL.iter().map(|&element| BufferDecl::read(format!("in_{element}"), 4, element)).collect();
    buffers.push(BufferDecl::output("out", 1, DataType::U32).with_len_of("in_u8"));
    buffers.push(BufferDecl::workgroup("shared", 64, DataType::F32));
    Program::new(buffers, [8, 4, 2], body)
        .with_domain(Domain::Counts([100, 20, u32::MAX]))
        .with_functions(vec![function])
}

fn samples() -> Vec<Program> {
    vec![Program::empty(), Program::new(Vec::new(), [0, 0, 0], Vec::new()), saxpy(), everything(), deepest()]
}

/// Expressions and blocks nested to their limits.
fn deepest() -> Program {
    let mut expr = Expr::var("x");
    for _ in 0..MAX_EXPR_DEPTH {
        expr = -expr;
    }
    let mut block = Block::new(vec![Node::Eval(expr)]);
    for _ in 1..MAX_BLOCK_DEPTH {
        block = Block::new(vec![Node::Block(block)]);
    }
    assert!(!block.is_too_deep());
    Program::new(Vec::new(), [1, 1, 1], block.into_vec())
}

#[test]
fn programs_survive_a_round_trip() {
    for program in samples() {
        let bytes = encode(&program);
        assert_eq!(decode(&bytes).as_ref(), Ok(&program));
    }
}

#[test]
fn the_format_does_not_drift() {
    // The format that stored files and other machines use: a change here needs a new version.
    let expected = concat!(
        "5659524501",                         // magic, version
        "01000573617870794001010200017903",   // its name, workgroup size, domain, three buffers:
        "00016100030b0100",                   // a
        "00017801000b0000",                   // x
        "0202010b0000",                       // y, named by the domain before
        "00020e000a626c61732e7361787079",     // no functions, one statement: a region
        "03010001690300000606340302060402",   // of two: let i = invocation.x, if i < len(y)
        "0204020206060103060303050302010100", // one store of a[0] *
        "0504020206050202020601",             // x[i] + y[i]; no else
        "2aa6d5266cf2ffa7"                    // checksum,
    );
    assert_eq!(hex(&encode(&saxpy())), expected);
    assert_eq!(
        hex(&saxpy().fingerprint()),
        "6bdf2e73ecedb2c6051a6149934bd6c57954ab4c41dc6848796e0e07191f6ec7"
    );
}

#[test]
fn what_was_lost_for_depth_has_a_fingerprint_and_no_decoding() {
    let mut expr = Expr::var("x");
    for _ in 0..=MAX_EXPR_DEPTH {
        expr = -expr;
    }
    let mut block = Block::default();
    for _ in 0..=MAX_BLOCK_DEPTH {
        block = Block::new(vec![Node::Block(block)]);
    }
    for node in [Node::Eval(expr), Node::Block(block)] {
        let program = Program::new(Vec::new(), [1, 1, 1], vec![node]);
        let error = decode(&encode(&program)).expect_err("parts are missing");
        assert!(error.to_string().contains("dropped for nesting too deep"), "{error}");
        assert_ne!(program.fingerprint(), Program::new(Vec::new(), [1, 1, 1], vec![]).fingerprint());
    }
}

#[test]
fn every_change_changes_the_fingerprint() {
    let buffer = |change: fn(&mut BufferDecl)| {
        let mut buffers = vec![BufferDecl::output("out", 0, DataType::U32)];
        change(&mut buffers[0]);
        Program::wrapped(buffers, [64, 1, 1], vec![])
    };
    let body = |node: Node| Program::new(vec![], [1, 1, 1], vec![node]);
    let function = |change: fn(&mut Function)| {
        let mut function = Function {
            name: "f".into(),
            params: vec![("p".into(), ValueType::I32)],
            result: ValueType::I32,
            body: Block::default(),
            value: Expr::var("p"),
        };
        change(&mut function);
        Program::empty().with_functions(vec![function])
    };
    let mut programs = samples();
    programs.extend([
        Program::empty().with_name("a"),
        Program::empty().with_name("b"),
        Program::empty().with_workgroup_size([2, 1, 1]),
        Program::empty().with_workgroup_size([1, 2, 1]),
        Program::empty().with_workgroup_size([1, 1, 2]),
        Program::empty().with_domain(Domain::Counts([1, 1, 1])),
        Program::empty().with_domain(Domain::Counts([1, 1, 2])),
        Program::empty().with_domain(Domain::LenOf("a".into())),
        Program::empty().with_domain(Domain::LenOf("b".into())),
        buffer(|_| ()),
        buffer(|b| b.name = "other".into()),
        buffer(|b| b.binding = 1),
        buffer(|b| b.access = Access::ReadWrite),
        buffer(|b| b.element = DataType::I32),
        buffer(|b| b.count = 1),
        buffer(|b| b.len_of = Some("out".into())),
        buffer(|b| b.len_of = Some("other".into())),
        function(|_| ()),
        function(|f| f.name = "g".into()),
        function(|f| f.params[0].0 = "q".into()),
        function(|f| f.params[0].1 = ValueType::U32),
        function(|f| f.params.push(("q".into(), ValueType::I32))),
        function(|f| f.result = ValueType::U32),
        function(|f| f.body = vec![Node::Return].into()),
        function(|f| f.value = Expr::i32(0)),
        body(Node::Block(vec![].into())),
        body(Node::Block(vec![Node::Block(vec![].into())].into())),
        body(Node::Eval(Expr::f32(0.0))),
        body(Node::Eval(Expr::f32(-0.0))),
        body(Node::Eval(Expr::u32(0))),
        body(Node::Eval(Expr::i32(0))),
        body(Node::Eval(Expr::op(Op::Add, Args::default()))),
        body(Node::Eval(Expr::op(Op::Add, [Expr::u32(0)]))),
        body(Node::Eval(Expr::subgroup(SubgroupOp::Reduce(Combine::Add), Args::default()))),
        body(Node::let_("a", Expr::var("b"))),
        body(Node::let_("b", Expr::var("a"))),
        body(Node::let_("a", Expr::var("a"))),
        body(Node::assign("a", Expr::var("a"))),
        body(Node::Trap(0)),
        body(Node::Trap(1)),
    ]);
    // Each op in the same context, so that a duplicate tag shows.
    programs.extend(Op::ALL.iter().map(|&op| body(Node::Eval(Expr::op(op, [Expr::bool(true)])))));
    for (k, a) in programs.iter().enumerate() {
        for b in &programs[..k] {
            assert_ne!(a.fingerprint(), b.fingerprint(), "{a:?}\n{b:?}");
        }
        assert_eq!(a.fingerprint(), a.clone().with_workgroup_size(a.workgroup_size()).fingerprint());
    }
}

#[test]
fn damaged_bytes_are_refused() {
    let bytes = encode(&saxpy());
    for length in 0..bytes.len() {
        assert!(decode(&bytes[..length]).is_err(), "cut to {length}");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&flipped).is_err(), "bit {bit}");
    }
    let mut longer = bytes;
    longer.push(0);
    assert_eq!(decode(&longer), Err(WireError::Checksum));
}

/// Mutates bytes behind a valid checksum: whatever still decodes must be the one encoding of its
/// program.
#[test]
fn only_canonical_bytes_decode() {
    for program in samples() {
        let content = &body(&program)[..];
        let step = 1 + content.len() / 40;
        for at in (0..content.len()).step_by(step) {
            for byte in 0..=u8::MAX {
                let mut changed = content.to_vec();
                changed[at] = byte;
                check_canonical(&changed);
            }
            for keep in 0..2 {
                let mut changed = content.to_vec();
                changed.splice(at..at + keep, [0x80, 0x00]);
                check_canonical(&changed);
            }
            check_canonical(&content[..at]);
        }
    }
}

fn check_canonical(content: &[u8]) {
    let bytes = framed(content);
    if let Ok(program) = decode(&bytes) {
        assert!(encode(&program) == bytes, "{program:?} was decoded from {}", hex(&bytes));
    }
}

#[test]
fn faults_are_reported_with_their_position() {
    let check = |content: &[u8], expected: &str| {
        let error = decode(&framed(content)).expect_err("the bytes are malformed");
        assert_eq!(error.to_string(), expected, "{content:02x?}");
    };
    check(&[], "the encoded program ends too early, at byte 5");
    check(&[2], "malformed encoded program: neither 0 nor 1 before an optional name at byte 5");
    check(&[1, 1], "malformed encoded program: a name that was not given before at byte 6");
    check(&[1, 0, 1, 0xFF], "malformed encoded program: a name that is not UTF-8 at byte 6");
    check(&[1, 0, 9, b'a'], "the encoded program ends too early, at byte 9");
    check(
        &[0, 0x81, 0x00],
        "malformed encoded program: a number that is too large or not in its shortest form at byte 6",
    );
    check(
        &[0, 0x80, 0x80, 0x80, 0x80, 0x10],
        "malformed encoded program: a number of more than 32 bits at byte 6",
    );
    check(&[0, 1, 1, 1, 3], "malformed encoded program: an unknown domain at byte 9");
    check(&[0, 1, 1, 1, 0, 0x7F], "the encoded program ends too early, at byte 11");
    check(
        &[0, 1, 1, 1, 0, 0, 0, 0],
        "malformed encoded program: parts that were dropped for nesting too deep at byte 12",
    );
    check(&[0, 1, 1, 1, 0, 0, 0, 2, 99], "malformed encoded program: an unknown statement at byte 13");
    check(
        &[0, 1, 1, 1, 0, 0, 0, 1, 0],
        "malformed encoded program: something after the program's end at byte 13",
    );
    check(
        &[0, 1, 1, 1, 0, 0, 0, 2, 5, 1, 0, 2],
        "malformed encoded program: a literal too large for its type at byte 16",
    );
    assert_eq!(decode(b"VYRE"), Err(WireError::Truncated { at: 4 }));
    assert_eq!(decode(b"VYRE\x04"), Err(WireError::Version { found: 4 }));
    assert_eq!(decode(b""), Err(WireError::NotAProgram));
}

/// Nested lists that each claim all remaining bytes: only the first claim can be met.
#[test]
fn promises_of_nested_lists_do_not_add_up() {
    let mut content = vec![0, 1, 1, 1, 0, 0, 0];
    for _ in 0..100 {
        content.extend_from_slice(&[0xC9, 0x01, 13]); // 200 statements, the first a block
    }
    let error = decode(&framed(&content));
    assert!(matches!(error, Err(WireError::Truncated { .. })), "{error:?}");
}

/// A program is written in the oldest version that can express it, and only that version decodes.
#[test]
fn a_program_has_one_version() {
    let plain = Program::empty();
    assert_eq!(encode(&plain)[4], 1);
    let worked_out = Domain::Axes([Expr::uniform("n").into(), Expr::u32(2).into(), Expr::u32(1).into()]);
    let sized = plain.clone().with_domain(worked_out);
    assert_eq!(encode(&sized)[4], 2);
    assert_eq!(decode(&encode(&sized)), Ok(sized.clone()));
    let newer = super::framed_in(2, &body(&plain));
    assert!(matches!(decode(&newer), Err(WireError::Malformed { .. })), "{:?}", decode(&newer));
    assert!(decode(&super::framed_in(1, &body(&sized))).is_err());
    let speaking = Program::wrapped(Vec::new(), [1, 1, 1], vec![Node::print("hello", [])]);
    assert_eq!(encode(&speaking)[4], 3);
    assert_eq!(decode(&encode(&speaking)), Ok(speaking.clone()));
    assert!(decode(&super::framed_in(1, &body(&speaking))).is_err());
    assert!(decode(&super::framed_in(3, &body(&sized))).is_err());
    let counts =
        Domain::Axes([Expr::u32(3).into(), Expr::u32(2).into(), (Expr::u32(2) - Expr::u32(1)).into()]);
    assert_eq!(*plain.with_domain(counts).domain(), Domain::Counts([3, 2, 1]));
}
