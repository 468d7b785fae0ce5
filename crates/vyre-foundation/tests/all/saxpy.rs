//! One kernel written in all three ways, as an external crate would: the programs are equal.

use vyre_foundation::ir::{BufferDecl, DataType, Domain, Expr, Node, Program, ProgramBuilder};
use vyre_foundation::text;

const TEXT: &str = r#"
kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region "blas.saxpy" {
    let i = invocation.x
    if i < len(y) { y[i] = a * x[i] + y[i] }
  }
}
"#;

fn built() -> Program {
    let mut saxpy = ProgramBuilder::new("saxpy");
    let a = saxpy.uniform("a", DataType::F32);
    let x = saxpy.read("x", DataType::F32);
    let y = saxpy.read_write("y", DataType::F32);
    saxpy.over(&y);
    saxpy.region("blas.saxpy", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        body.when(i.clone().lt(y.len()), |body| body.store(&y, &i, a.value() * x.at(&i) + y.at(&i)));
    });
    saxpy.finish()
}

fn constructed() -> Program {
    let i = || Expr::var("i");
    let sum = Expr::load("a", Expr::u32(0)) * Expr::load("x", i()) + Expr::load("y", i());
    let body = vec![Node::region(
        "blas.saxpy",
        vec![
            Node::let_("i", Expr::invocation_id(0)),
            Node::if_(i().lt(Expr::buf_len("y")), vec![Node::store("y", i(), sum)]),
        ],
    )];
    let buffers = vec![
        BufferDecl::uniform("a", 0, DataType::F32),
        BufferDecl::read("x", 1, DataType::F32),
        BufferDecl::read_write("y", 2, DataType::F32),
    ];
    Program::wrapped(buffers, [64, 1, 1], body).with_name("saxpy").with_domain(Domain::LenOf("y".into()))
}

#[test]
fn three_ways_to_write_one_program() -> Result<(), vyre_foundation::diagnostics::Diagnostics> {
    let parsed = text::parse(TEXT)?;
    assert_eq!(built(), parsed);
    assert_eq!(constructed(), parsed);
    assert_eq!(built().fingerprint(), parsed.fingerprint());
    assert!(parsed.validate()?.shape_free);
    Ok(())
}
