//! Round trips, messages and hostile texts.

use super::lexer::{Lexeme, lex};
use super::{literal, parse, parse_functions, print};
use crate::diagnostics::{Code, Diagnostic, line_column};
use crate::ir::*;
use arbitrary::{Arbitrary, Unstructured};
use std::path::{Path, PathBuf};

/// Deterministic pseudo-random bytes.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(step).collect()
}

fn round_trip(program: &Program) {
    let text = print(program);
    match parse(&text) {
        Ok(read) => {
            assert_eq!(&read, program, "\n{text}");
            assert_eq!(print(&read), text);
            check_source_map(&read);
        }
        Err(faults) => panic!("{faults}\n{text}\n{program:?}"),
    }
}

fn check_source_map(program: &Program) {
    let source = program.source().expect("a parsed program knows its text");
    let mut count = 0;
    let mut nodes = 0;
    for function in program.functions() {
        walk_block(&function.body, &mut |_| nodes += 1, &mut |_| count += 1);
        walk_expr(&function.value, &mut |_| count += 1);
    }
    walk_block(program.entry(), &mut |_| nodes += 1, &mut |_| count += 1);
    assert_eq!(source.tree.len(), count + nodes, "\n{}", source.source);
    assert_eq!(source.buffers.len(), program.buffers().len());
    assert_eq!(source.functions.len(), program.functions().len());
}

#[test]
fn arbitrary_programs_round_trip() {
    for seed in 0..3000 {
        let bytes = noise(seed, 64 + (seed as usize % 20) * 40);
        let program = Program::arbitrary_take_rest(Unstructured::new(&bytes)).expect("never refused");
        round_trip(&program);
    }
}

const SAXPY: &str = r#"
// y = a x + y
kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region "blas.saxpy" {
    let i = invocation.x
    if i < len(y) { y[i] = a * x[i] + y[i] }
  }
}
"#;

#[test]
fn saxpy_in_text_and_in_rust_are_equal() {
    let mut saxpy = ProgramBuilder::new("saxpy").workgroup([64, 1, 1]);
    let a = saxpy.uniform("a", DataType::F32);
    let x = saxpy.read("x", DataType::F32);
    let y = saxpy.read_write("y", DataType::F32);
    saxpy.over(&y);
    saxpy.region("blas.saxpy", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        body.when(i.clone().lt(y.len()), |body| body.store(&y, &i, a.value() * x.at(&i) + y.at(&i)));
    });
    assert_eq!(parse(SAXPY), Ok(saxpy.finish()));
}

/// Parses `text` as an expression in a kernel with the single-value uniform `u`.
fn expression(text: &str) -> Expr {
    let source = format!("kernel (u: f32 uniform) {{\n{text}\n}}");
    let program = parse(&source).unwrap_or_else(|faults| panic!("{faults}"));
    check_source_map(&program);
    match &program.entry()[..] {
        [Node::Eval(expr)] => expr.clone(),
        other => panic!("{text} is read as {other:?}"),
    }
}

fn var(name: &str) -> Expr {
    Expr::var(name)
}

#[test]
fn expressions_are_read_by_precedence() {
    let check = |text: &str, expected: Expr| assert_eq!(expression(text), expected, "{text}");
    check("a + b * c", var("a") + var("b") * var("c"));
    check("a - b - c", (var("a") - var("b")) - var("c"));
    check("a - (b - c)", var("a") - (var("b") - var("c")));
    check("a < b && c < d || !e", (var("a").lt(var("b")) & var("c").lt(var("d"))) | !var("e"));
    check("a & b == c", (var("a") & var("b")).equals(var("c")));
    check("a << 2 + b >> 1", (var("a") << (Expr::u32(2) + var("b"))) >> Expr::u32(1));
    check("-a * b", -var("a") * var("b"));
    check("-1i32", Expr::i32(-1));
    check("- 1i32", Expr::i32(-1));
    check("-(1i32)", -Expr::i32(1));
    check("--1i32", -Expr::i32(-1));
    check("a -1.0", var("a") - Expr::f32(1.0));
    check("-inf", Expr::f32(f32::NEG_INFINITY));
    check("u", Expr::uniform("u"));
    check("`u`", var("u"));
    check("u[0]", Expr::uniform("u"));
    check("u(a)", Expr::call("u", [var("a")]));
    check("min(a, b)", var("a").min(var("b")));
    check("`min`(a, b)", Expr::call("min", [var("a"), var("b")]));
    check("min", var("min"));
    check("add(a)", Expr::op(Op::Add, [var("a")]));
    check("f32(a)", var("a").cast(ValueType::F32));
    check("f32_bits(0x7fc00001)", Expr::f32(f32::from_bits(0x7FC0_0001)));
    check("f64_bits(1)", Expr::f64(f64::from_bits(1)));
    check("workgroup.y + local.7", Expr::workgroup_id(1) + Expr::local_id(7));
    check("len(`odd name`)", Expr::buf_len("odd name"));
    check("atomic_add(h, a, 1)", Expr::atomic_add("h", var("a"), Expr::u32(1)));
    check("atomic_add(h)", Expr::Atomic(AtomicOp::Add, "h".into(), Args::default()));
    check("subgroup_reduce_add(a,)", Expr::subgroup(SubgroupOp::Reduce(Combine::Add), [var("a")]));
    check("select(\n  a,\n  b\n  + c,\n  d)", Expr::select(var("a"), var("b") + var("c"), var("d")));
    check("a +\n b", var("a") + var("b"));
    check("a /* x\n */ // y", var("a"));
}

#[test]
fn statements_are_read() {
    let check = |text: &str, expected: Vec<Node>| {
        let source = format!("kernel () {{ {text} }}");
        let program = parse(&source).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(program.entry()[..], expected, "{text}");
        check_source_map(&program);
    };
    check(
        "let a = 1; a = 2\n a += b",
        vec![Node::let_("a", 1u32), Node::assign("a", 2u32), Node::assign("a", var("a") + var("b"))],
    );
    check(
        "t[i + 1] <<= 2",
        vec![Node::store(
            "t",
            var("i") + Expr::u32(1),
            Expr::load("t", var("i") + Expr::u32(1)) << Expr::u32(2),
        )],
    );
    check("a <= b; a == b", vec![Node::eval(var("a").le(var("b"))), Node::eval(var("a").equals(var("b")))]);
    check("a\n-b\n(c)", vec![Node::eval(var("a")), Node::eval(-var("b")), Node::eval(var("c"))]);
    check(
        "array t: f32[16] ; t[0] = 1.0",
        vec![Node::array("t", ValueType::F32, 16), Node::store("t", Expr::u32(0), Expr::f32(1.0))],
    );
    check(
        "if a { break } else if b { continue }\nelse { return } barrier; trap 7",
        vec![
            Node::if_else(
                var("a"),
                vec![Node::Break],
                vec![Node::if_else(var("b"), vec![Node::Continue], vec![Node::Return])],
            ),
            Node::Barrier,
            Node::Trap(7),
        ],
    );
    check(
        "for i in 0..n {} for k in a - 1..b step -1i32 { {} }",
        vec![
            Node::for_range("i", 0u32, var("n"), vec![]),
            Node::for_step(
                "k",
                [var("a") - Expr::u32(1), var("b"), Expr::i32(-1)],
                vec![Node::block(vec![])],
            ),
        ],
    );
    check(
        "while step < in { region \"r \\u{e9}\" {} }",
        vec![Node::while_(var("step").lt(var("in")), vec![Node::region("r é", vec![])])],
    );
    check(";;", vec![]);
}

#[test]
fn headers_are_read() {
    let source = "kernel \"odd \\\"name\\\"\"(
        @binding(3) x: read f16[], a: f64 uniform, t: workgroup u8[64], y: output f32[] len_of x,
        u: uniform i32[4],
    ) over [16, 16] workgroup [8, 8] {}\nfn f() -> bool { true }";
    let program = parse(source).unwrap_or_else(|faults| panic!("{faults}"));
    let expected = Program::new(
        vec![
            BufferDecl::read("x", 3, DataType::F16),
            BufferDecl::uniform("a", 4, DataType::F64),
            BufferDecl::workgroup("t", 64, DataType::U8),
            BufferDecl::output("y", 5, DataType::F32).with_len_of("x"),
            BufferDecl::uniform("u", 6, DataType::I32).with_count(4),
        ],
        [8, 8, 1],
        vec![],
    )
    .with_name("odd \"name\"")
    .with_domain(Domain::Counts([16, 16, 1]))
    .with_functions(vec![Function {
        name: "f".into(),
        params: vec![],
        result: ValueType::Bool,
        body: Block::default(),
        value: Expr::bool(true),
    }]);
    assert_eq!(program, expected);
    check_source_map(&program);
    assert_eq!(parse("kernel () {}").map(|program| program.workgroup_size()), Ok([64, 1, 1]));
}

#[test]
fn spans_cover_what_they_belong_to() {
    let program = parse(SAXPY).expect("parses");
    let source = program.source().expect("a parsed program knows its text");
    let covered = |span: &Span| &source.source[span.start as usize..span.end as usize];
    assert_eq!(covered(&source.header), "kernel saxpy");
    assert_eq!(
        source.buffers.iter().map(covered).collect::<Vec<_>>(),
        ["a: f32 uniform", "x: read f32[]", "y: read_write f32[]"]
    );
    let tree: Vec<_> = source.tree.iter().map(covered).collect();
    assert_eq!(tree[..5], ["invocation.x", "let i = invocation.x", "i", "len(y)", "i < len(y)"]);
    assert_eq!(tree[5..14], ["i", "a", "a", "i", "x[i]", "a * x[i]", "i", "y[i]", "a * x[i] + y[i]"]);
    assert_eq!(tree[14], "y[i] = a * x[i] + y[i]");
    assert!(tree[15].starts_with("if i < len(y)") && tree[16].starts_with("region"));
    assert_eq!(tree.len(), 17);
}

#[test]
fn functions_are_read_alone() {
    let functions =
        parse_functions("fn twice(x: f32) -> f32 {\n  let y = x\n  y + y\n}\nfn one() -> u32 { 1 }");
    let functions = functions.unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(functions[0].body[..], [Node::let_("y", var("x"))]);
    assert_eq!(functions[0].value, var("y") + var("y"));
    assert_eq!(functions[1].value, Expr::u32(1));
    assert_eq!(parse_functions(""), Ok(vec![]));
    assert!(parse_functions("kernel () {}").is_err());
}

/// Programs at the depth limits, where printing needs the most parentheses.
#[test]
fn the_deepest_trees_round_trip() {
    let wrappers: [fn(Expr) -> Expr; 7] = [
        |inner| Expr::var("a") - inner,
        |inner| inner - Expr::var("a"),
        |inner| -inner,
        |inner| Expr::load("x", inner),
        |inner| Expr::call("f", [inner]),
        |inner| Expr::atomic_add("x", inner, Expr::u32(1)),
        |inner| (Expr::var("a") | inner).equals(Expr::var("a")),
    ];
    for wrap in wrappers {
        for other in wrappers {
            let mut expr = Expr::u32(1);
            loop {
                let next = other(wrap(expr.clone()));
                let mut lost = false;
                walk_expr(&next, &mut |expr| lost |= expr.arg_list().is_some_and(|args| args.is_too_deep()));
                if lost {
                    break;
                }
                expr = next;
            }
            round_trip(&Program::new(vec![], [1, 1, 1], vec![Node::eval(expr)]));
        }
    }
    let blocks: [fn(Block) -> Node; 4] = [
        |inner| Node::region("r", inner),
        |inner| Node::if_else(true, vec![], inner),
        |inner| Node::while_(true, inner),
        |inner| Node::block(inner),
    ];
    for wrap in blocks {
        let mut block = Block::default();
        for _ in 1..MAX_BLOCK_DEPTH {
            block = vec![wrap(block)].into();
        }
        assert!(!block.is_too_deep());
        round_trip(&Program::new(vec![], [1, 1, 1], block.into_vec()));
    }
}

#[test]
fn hostile_texts_are_refused_in_bounded_time() {
    let million = 1_000_000;
    for part in ["(", "{", "!"] {
        let text = format!("kernel () {{ {}", part.repeat(million));
        let faults = parse(&text).expect_err("nests too deep");
        assert!(faults.iter().any(|fault| fault.code == Code::TooDeep), "{part}");
    }
    let words =
        "( { [ ! - x[ f( 1+ a-( a||b&&c==d|e^f&g<<h+i*( \" ` /* @ kernel( 1e \\ ü } ) , ; f32_bits( x 1 `x`";
    let phrases =
        ["if a {", "else if a {", "fn f(", "a\n", "region \"\" {", "\n{", "$ ", "x = ", "`x` ", "\"\\x\" "];
    let deep = "kernel () {".to_string() + &"if a {".repeat(MAX_BLOCK_DEPTH - 2);
    let starts =
        ["", "kernel () {", "kernel () { if a {} ", "kernel () { x = ", "fn f() -> f32 {", "kernel (", &deep];
    for part in words.split(' ').chain(phrases) {
        for before in starts {
            let text = format!("{before}{}", part.repeat(50_000 / part.len()));
            if let Err(faults) = parse(&text) {
                assert!(faults.len() <= 50 && !faults.is_empty());
                assert!(faults.to_string().len() < 100_000);
            }
        }
    }
    let sum = format!("kernel () {{ x = {} }}", "1 + ".repeat(million / 4) + "1");
    let faults = parse(&sum).expect_err("a sum of so many nests too deep");
    assert!(faults.iter().all(|fault| fault.code == Code::TooDeep), "{}", faults.len());
    assert!(parse(&" ".repeat((64 << 20) + 1)).is_err());
}

#[test]
fn mutated_and_random_texts_never_panic() {
    let words = [
        "kernel", "fn", "let", "(", ")", "{", "}", "[", "]", "\"", "`", "\n", "0x", "1.", "..", "&&", "ü",
        "\\", "/*", "x",
    ];
    for seed in 0..3000u64 {
        let bytes = noise(seed, 400);
        let program = Program::arbitrary_take_rest(Unstructured::new(&bytes)).expect("never refused");
        let mut text = if seed % 2 == 0 { print(&program) } else { SAXPY.to_string() };
        for change in bytes.chunks_exact(4).take(1 + seed as usize % 8) {
            let place = text.floor_char_boundary(
                usize::from(u16::from_le_bytes([change[0], change[1]])) % (text.len() + 1),
            );
            let end = text.ceil_char_boundary((place + usize::from(change[2] % 4)).min(text.len()));
            text.replace_range(place..end, words[usize::from(change[3]) % words.len()]);
        }
        if let Ok(program) = parse(&text) {
            round_trip(&program);
        }
        parse(&String::from_utf8_lossy(&bytes)).expect_err("noise is no program").to_string();
    }
}

#[test]
fn faults_come_all_at_once_with_their_places() {
    let check = |source: &str, expected: &[&str]| {
        let faults = match parse(source) {
            Ok(program) => panic!("was read as {program}"),
            Err(faults) => faults,
        };
        let shown = |fault: &Diagnostic| {
            let (line, column) = line_column(source, fault.span.map_or(0, |span| span.start));
            let help = fault.help.as_deref().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("{line}:{column} {}: {}{help}", fault.code, fault.message)
        };
        assert_eq!(faults.iter().map(shown).collect::<Vec<_>>(), expected, "\n{source}");
    };
    check("", &["1:1 T006: the text holds no kernel (add `kernel name(…) { … }`)"]);
    check(
        "kernel () {}\nkernel () {}",
        &["2:1 T006: the text holds a second kernel (put each kernel in a separate text)"],
    );
    check(
        "kernle () {}",
        &["1:1 T001: expected `fn`, `kernel` or `const`, found `kernle` (did you mean `kernel`?)"],
    );
    check(
        "kernel f(x: raed f32[],\n y: output f32,\n z: f31 uniform) {\n lte q = 1\n}\nfn g(a: f23) -> f32 { a }",
        &[
            "1:13 T005: expected an access, found `raed` (did you mean `read`?)",
            "2:15 T001: expected `[`, found `,` (write `f32[]` for a buffer that is sized at dispatch)",
            "3:5 T005: expected an access, found `f31` (write one of read, read_write, output, uniform, workgroup)",
            "4:6 T001: expected the end of the line or `;`, found `q` (did you mean `let` for `lte`?)",
            "6:9 T005: expected a value type, found `f23` (did you mean `f32`?)",
        ],
    );
    check(
        "kernel () {\n let b = 1u16\n let if = 3\n let a = -1\n}",
        &[
            "2:10 T002: `1u16` is not a number of type u32 (add the suffix of a type that it fits, as in `7u64`)",
            "3:6 T001: expected a variable, found `if` (this is a keyword; to use it as a name, write it in backticks)",
        ],
    );
    check(
        "kernel () {\n let a = -1\n let c = 5000000000\n let d = 1e99\n}",
        &[
            "2:10 T002: `-1` is negative, but u32 has no negative numbers (give it a signed type, as in `-1i32`, or a \
         point, as in `-1.0`)",
            "3:10 T002: `5000000000` is beyond the range of u32 (add the suffix of a type that it fits, as in `7u64`)",
            "4:10 T002: `1e99` is beyond the range of f32",
        ],
    );
    check(
        "kernel () {\n let mut a = 1\n var b = 2\n let c: f32 = 1.0\n}",
        &[
            "2:10 T001: expected `=`, found `a` (every variable can be assigned: leave `mut` out)",
            "3:6 T001: expected the end of the line or `;`, found `b` (did you mean `let` for `var`?)",
            "4:7 T001: expected `=`, found `:` (a variable has the type of its value: leave the type out)",
        ],
    );
    check(
        "kernel (y: output u32[4]) over (w, h) {\n for (i in 0..4) { }\n a++\n let c = a as f32\n for i = 0 { }\n}",
        &[
            "1:32 T001: expected a buffer or a number of invocations, found `(` (write expressions in brackets, one \
             for each axis: `over [width, height]`)",
            "2:6 T001: expected a counter, found `(` (a loop is written `for i in 0..count { … }`, or with a step: \
             `for i in 0..count step 2`)",
            "3:4 T001: expected an expression, found `+` (`x += 1` changes `x` by one)",
            "4:12 T001: expected the end of the line or `;`, found `as` (a conversion is a call: `f32(x)` for `x as \
             f32`)",
            "5:8 T001: expected `in`, found `=` (a loop is written `for i in 0..count { … }`, or with a step: `for i \
             in 0..count step 2`)",
        ],
    );
    check(
        "kernel () over 640x480 {}",
        &["1:16 T002: `640x480` is not a number of invocations (write `[640, 480]`)"],
    );
    check(
        "kernel () workgroup n {}",
        &[
            "1:21 T001: expected a size or `[`, found `n` (a size is a number or made of constants: `const n: u32 = \
             64` before the kernel, which `--set` overrides)",
        ],
    );
    check(
        "kernel () {\n if x[ {\n  a = 3 +* 2\n }\n else { z = }\n a\n + b\n c d\n}",
        &[
            "2:8 T001: expected an expression, found `{`",
            "3:10 T001: expected an expression, found `*`",
            "7:2 T001: expected an expression, found `+` (an expression continues on the next line only inside \
             parentheses or after an operator)",
            "8:4 T001: expected the end of the line or `;`, found `d`",
        ],
    );
    check(
        "kernel () {\n let a = (1 +\n  f(2, 3\n let b = 4\n}",
        &["4:2 T001: expected `)`, found `let` (close the `(` of line 3, column 4)"],
    );
    check(
        "kernel () {\n region \"a {\n}\nfn f() -> f32 { let a = 1 }",
        &[
            "2:9 T003: this string is not closed on its line",
            "4:27 T007: the function `f` does not end with its result (end it with an expression of type f32)",
        ],
    );
    check("kernel () {\n {\n", &["2:2 T003: this `{` is never closed (add the `}` that ends it)"]);
    check(
        "kernel () {\n x[atomic_add(c, 0, 1)] += 1\n (x) = 1\n x[1, 2] = 1\n y.x\n workgroup.w\n $\n}",
        &[
            "2:2 T008: the index of `x` has an atomic in it (name the index with `let` first)",
            "3:6 T001: expected the end of the line, found `=` (only a variable or one element, as in `y[i] = x`, can \
             be assigned)",
            "4:10 T001: expected the end of the line, found `=` (only a variable or one element, as in `y[i] = x`, can \
             be assigned)",
            "5:3 T001: expected an operator, found `.` (only `invocation`, `workgroup`, `local`, `grid_size`, \
             `workgroup_size` have axes)",
            "6:12 T001: expected an axis: `x`, `y` or `z`, found `w`",
            "7:2 T004: unknown character `$`",
        ],
    );
    check(
        "kernel () {\n let a = ~1\n}",
        &["2:10 T004: unknown character `~` (`!x` inverts every bit of an integer)"],
    );
    check(
        "kernel () /* open",
        &[
            "1:11 T003: this comment is never closed",
            "1:18 T001: expected `over`, `workgroup` or `{`, found the end of the text",
        ],
    );
}

#[test]
fn the_examples_of_the_documentation_are_read() {
    let page = include_str!("../../../../docs/text-format.md");
    let mut seen = 0;
    for example in page.split("\n```vyre").skip(1) {
        let (kind, text) = example.split_once('\n').expect("a fence has an end");
        let text = text.split("\n```").next().unwrap_or_default();
        let source = match kind {
            "" => text.to_string(),
            _ => format!("kernel (x: read_write u32[]) {{ region \"example\" {{\n{text}\n}} }}"),
        };
        let program = parse(&source).unwrap_or_else(|faults| panic!("{faults}"));
        round_trip(&program);
        if let Err(faults) = program.validate() {
            panic!("{faults}");
        }
        seen += 1;
    }
    assert_eq!(seen, 9);
    for keyword in super::vocabulary::KEYWORDS {
        assert!(page.contains(keyword));
    }
}

/// The text with every number suffixed by its default type.
fn with_suffixes(source: &str) -> String {
    let (tokens, _) = lex(source);
    let mut text = String::new();
    let mut done = 0;
    for token in tokens.iter().filter(|token| token.kind == Lexeme::Number) {
        let [start, end] = [token.span.start, token.span.end].map(|at| at as usize);
        text += &source[done..end];
        done = end;
        if literal::is_unsuffixed(&source[start..end]) {
            let value = literal::read_open(&source[start..end], literal::Sign::Plus).ok();
            text += value.map_or("", |value| value.ty().name());
        }
    }
    text + &source[done..]
}

fn vyre_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder of the project").flatten() {
        let path = entry.path();
        if path.is_dir() {
            vyre_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "vyre") {
            found.push(path);
        }
    }
}

/// A program that is valid with the default types of its numbers means the same without suffixes.
#[test]
fn numbers_keep_the_type_that_they_have_by_themselves() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["filetests", "examples", "bench", "crates/vyre/src/conformance"] {
        vyre_files(&project.join(folder), &mut files);
    }
    let mut compared = 0;
    for file in files {
        let source = std::fs::read_to_string(&file).expect("a text");
        let Ok(explicit) = parse(&with_suffixes(&source)).map(Program::in_regions) else { continue };
        if explicit.validate().is_err() {
            continue;
        }
        let read = parse(&source).map(Program::in_regions).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(read.fingerprint(), explicit.fingerprint(), "{}", file.display());
        compared += 1;
    }
    assert!(compared >= 350, "only {compared} programs were compared");
}

#[test]
fn numbers_take_the_type_of_their_context() {
    let header = "fn half(x: f64) -> f64 { x / 2.0 }\n\
                  kernel (i: i32 uniform, l: i64 uniform, u: u64 uniform, d: f64 uniform, y: output i64[4]) {\n";
    let body = |text: &str| {
        let program =
            parse(&format!("{header}{text}\n}}")).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
        round_trip(&program);
        program.in_regions()
    };
    let check = |open: &str, explicit: &str| {
        let [open, explicit] = [open, explicit].map(body);
        assert_eq!(open, explicit);
        explicit.validate().unwrap_or_else(|faults| panic!("{faults}"));
    };
    check("let a = i + 1", "let a = i + 1i32");
    check("let a = 1 + l", "let a = 1i64 + l");
    check("let a = l * (2 + 3) - 1", "let a = l * (2i64 + 3i64) - 1i64");
    check("let a = l + -1", "let a = l + -1i64");
    check("let a = l - - /* one */ 1", "let a = l - -1i64");
    check("let a = l + -(1 << 3)", "let a = l + -(1i64 << 3)");
    check("let a = u + 5_000_000_000", "let a = u + 5000000000u64");
    check("let a = u & 0xffff_ffff_ffff", "let a = u & 0xffffffffffffu64");
    check("let a = d * 0.1 + 1e300", "let a = d * 0.1f64 + 1e300f64");
    check("let a = max(d, -inf) < nan", "let a = max(d, -inf_f64) < nan_f64");
    check("let a = d * sqrt(2.0)", "let a = d * sqrt(2.0f64)");
    check("let a = half(3.0)", "let a = half(3.0f64)");
    check("let a = half(half(3.0) + 1.0)", "let a = half(half(3.0f64) + 1.0f64)");
    check("let a = clamp(i, -4, 4)", "let a = clamp(i, -4i32, 4i32)");
    check("let a = fma(2.0, d, 1.0)", "let a = fma(2.0f64, d, 1.0f64)");
    check("let a = i < 3 && l != 0", "let a = i < 3i32 && l != 0i64");
    check("let a = select(i > 0, 1, -1) * l", "let a = select(i > 0i32, 1i64, -1i64) * l");
    check("let a = select(true, 1, i)", "let a = select(true, 1i32, i)");
    check("let a = ldexp(d, 3)", "let a = ldexp(d, 3i32)");
    check("let a = ldexp(0.5, -3)", "let a = ldexp(0.5, -3i32)");
    check("let a = insert_bits(l, 5, 1, 2)", "let a = insert_bits(l, 5i64, 1, 2)");
    check("let a = l\na = 7\na += 1\na <<= 1", "let a = l\na = 7i64\na += 1i64\na <<= 1");
    check("y[0] = 3 + 4\ny[1] *= 2", "y[0] = 3i64 + 4i64\ny[1] *= 2i64");
    check("array t: f64[4]\nt[2] = 0.1", "array t: f64[4]\nt[2] = 0.1f64");
    check("atomic_add(y, 1, 2)", "atomic_add(y, 1, 2i64)");
    check("atomic_compare_exchange(y, 1, 2, -3)", "atomic_compare_exchange(y, 1, 2i64, -3i64)");
    check("for k in 0..l { y[0] = k + 1 }", "for k in 0i64..l step 1i64 { y[0] = k + 1i64 }");
    check("for k in i..-1 step -1 {}", "for k in i..-1i32 step -1i32 {}");
    check("for k in i..i {}", "for k in i..i step 1i32 {}");
    check("print(\"{}\", l + 1)\nassert(d > 0.5)", "print(\"{}\", l + 1i64)\nassert(d > 0.5f64)");
    // No context, or none that asks for another type.
    check("let a = 1 + 2", "let a = 1u32 + 2u32");
    check("let a = i64(3) + i64(0.1)", "let a = i64(3u32) + i64(0.1f32)");
    check("let a = l >> 1", "let a = l >> 1u32");
    check("let a = y[0] + i64('a')", "let a = y[0u32] + i64(97u32)");
    check("let a = popcount(5) + 1", "let a = popcount(5u32) + 1u32");
}

#[test]
fn functions_and_constants_give_numbers_types() {
    let check = |open: &str, explicit: &str| {
        let [open, explicit] = [open, explicit].map(|text| {
            let program = parse(text).unwrap_or_else(|faults| panic!("{text}\n{faults}"));
            program.validate().unwrap_or_else(|faults| panic!("{faults}"));
            program
        });
        assert_eq!(open, explicit);
    };
    let kernel = |before: &str, value: &str| {
        format!("{before}\nkernel (y: output i64[1]) over [1] {{ region \"r\" {{ y[0] = {value} }} }}")
    };
    let sign = "fn sign_of(x: i64) -> i64 { if x < 0 { return -1 } let t = x; t = t + 1; 1 }";
    let signed = "fn sign_of(x: i64) -> i64 { if x < 0i64 { return -1i64 } let t = x; t = t + 1i64; 1i64 }";
    check(&kernel(sign, "sign_of(-3)"), &kernel(signed, "sign_of(-3i64)"));
    let loops = "fn last(n: i64) -> i64 { 5; for k in 0..n { if k > 3 { return k } } -1 }";
    let looped =
        "fn last(n: i64) -> i64 { 5; for k in 0i64..n step 1i64 { if k > 3i64 { return k } } -1i64 }";
    check(&kernel(loops, "last(7)"), &kernel(looped, "last(7i64)"));
    check(&kernel("const N: i64 = 2 * -3", "N + 1"), &kernel("", "-6i64 + 1i64"));
    check(&kernel("const N: i64 = -3\nconst M: i64 = N * 2 + 1", "M"), &kernel("", "-5i64"));
    let sized = |size: &str| {
        format!(
            "kernel (n: i32 uniform, y: output u32[{size}]) over [{size}] {{ region \"r\" {{ y[0] = 1 }} }}"
        )
    };
    check(&sized("u32(n + 1)"), &sized("u32(n + 1i32)"));
}

/// Invalid programs parse back equal too.
#[test]
fn numbers_next_to_other_types_are_written_with_suffixes() {
    let faulty = [
        Expr::u32(1) + Expr::i64(2),
        Expr::f32(0.5) * Expr::f64(2.0),
        Expr::f32(f32::NEG_INFINITY).max(Expr::f64(2.0)),
        Expr::f32(f32::NAN).max(Expr::f64(2.0)),
        -(Expr::u32(1) + Expr::u32(0)) + Expr::i32(2),
    ];
    for expr in faulty {
        let nodes = vec![
            Node::let_("a", expr),
            Node::for_step("k", [Expr::i32(0), Expr::i32(3), Expr::u32(1)], vec![]),
        ];
        round_trip(&Program::new(vec![], [1, 1, 1], nodes));
    }
    let valid = Program::new(vec![], [1, 1, 1], vec![Node::let_("a", Expr::u32(1) + Expr::u32(2))]);
    assert!(print(&valid).contains("let a = 1 + 2\n"));
}

#[test]
fn checked_kernels_are_listed() {
    let source =
        "kernel list(a: f32 uniform, x: read f32[], y: read_write u32[8], z: output f32[] len_of x) over x {
      region \"r\" {
        array t: f32[4]
        let i = invocation.x
        let sum = 0.0
        for k in 0..4 { sum += t[k] }
        while sum < a { sum = sum * 2.0 }
        atomic_add(y, 3, subgroup_lane())
        if i < len(x) { z[i] = x[i] } else { return }
        trap 1
      }
    }";
    let kernel = parse(source).expect("parses").validate().unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(kernel.to_string(), LISTING.trim_start());
}

const LISTING: &str = r#"
kernel list over x workgroup 64 {
  buffer a: uniform f32[1]
  buffer x: read f32[]
  buffer y: read_write u32[8]
  buffer z: output f32[] len_of x
  array t.0: f32[4]
  local sum.0: f32
  region "r" {
    clear t.0
    v0: u32 = invocation.x
    v1: f32 uniform = 0.0
    set sum.0 = v1
    v2: u32 uniform = 0
    v3: u32 uniform = 4
    v4: u32 uniform = 1
    for v5: u32 uniform in v2..v3 step v4 {
      v6: f32 uniform = get sum.0
      v7: f32 uniform = load t.0[v5]
      v8: f32 uniform = add v6, v7
      set sum.0 = v8
    }
    loop {
      v9: f32 uniform = get sum.0
      v10: u32 uniform = 0
      v11: f32 uniform = load a[v10]
      v12: bool uniform = lt v9, v11
      if v12 {} else {
        break
      }
      v13: f32 uniform = get sum.0
      v14: f32 uniform = 2.0
      v15: f32 uniform = mul v13, v14
      set sum.0 = v15
    }
    v16: u32 uniform = 3
    v17: u32 = subgroup_lane
    v18: u32 = atomic_add y[v16], v17
    v19: u32 uniform = len x
    v20: bool = lt v0, v19
    if v20 {
      v21: f32 = load x[v0]
      store z[v0] = v21
    } else {
      return
    }
    trap 1
  }
}
"#;

/// Every return nests what follows it one block deeper, so the number of returns is limited.
#[test]
fn a_function_returns_early_as_often_as_blocks_nest() {
    let text = |count: usize| {
        let guards: String = (0..count).map(|k| format!("if x == {k} {{ return {k} }}\n")).collect();
        format!(
            "fn f(x: u32) -> u32 {{\n{guards}x }} kernel k(y: output u32[1]) {{ region \"r\" {{ y[0] = f(1) }} }}"
        )
    };
    let checked = |count: usize| parse(&text(count)).and_then(|program| program.validate()).map(drop);
    assert_eq!(checked(127), Ok(()));
    for count in [128, 129, 20_000] {
        let faults = checked(count).expect_err("it nests too deep");
        assert!(faults.iter().any(|fault| fault.code == Code::TooDeep), "{count}: {faults}");
    }
}
