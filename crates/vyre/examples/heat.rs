//! A kernel built in Rust: heat flows along a rod whose ends are held at 0 and 1, alternating
//! between two buffers.

use vyre::prelude::*;

const LENGTH: usize = 32;
const STEPS: usize = 4000;

/// `next[i] = x[i] + (x[i - 1] - 2 x[i] + x[i + 1]) / 4` inside; the ends keep their values.
fn heat() -> Program {
    let mut heat = ProgramBuilder::new("heat");
    let (x, next) = (heat.read("x", DataType::F32), heat.output("next", DataType::F32));
    heat.over(&x);
    heat.region("heat.step", |body| {
        let i = body.bind("i", Expr::invocation_id(0));
        let here = body.bind("here", x.at(&i));
        let flow = x.at(&(i.clone() - Expr::u32(1))) - Expr::f32(2.0) * here.clone()
            + x.at(&(i.clone() + Expr::u32(1)));
        let inside = i.clone().gt(Expr::u32(0)) & i.clone().lt(x.len() - Expr::u32(1));
        let moved = here.clone() + flow * Expr::f32(0.25);
        body.store(&next, &i, Expr::select(inside, moved, here));
    });
    heat.finish()
}

fn main() -> Result<(), BackendError> {
    let step = Runtime::new()?.load(heat())?;
    let mut now = vec![0.0f32; LENGTH];
    now[LENGTH - 1] = 1.0;
    let mut next = vec![0.0f32; LENGTH];
    for _ in 0..STEPS {
        step.call().bind("x", &now).bind("next", &mut next).run()?;
        std::mem::swap(&mut now, &mut next);
    }
    for (place, heat) in now.iter().enumerate().step_by(4) {
        println!("{place:>3} {heat:.3} {}", "#".repeat((heat * 40.0) as usize));
    }
    // Finally, heat rises evenly from one end to the other.
    let even = |(place, heat): (usize, &f32)| (heat - place as f32 / (LENGTH - 1) as f32).abs() < 0.01;
    assert!(now.iter().enumerate().all(even));
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
