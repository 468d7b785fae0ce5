//! Black-Scholes option prices in three forms: a Rust function, a file, and a program built in
//! Rust.

use vyre::prelude::*;

#[vyre::function]
fn normal_below(x: f32) -> f32 {
    0.5 + 0.5 * vyre::erf(x * 0.70710678)
}

#[vyre::kernel(over = spot)]
#[rustfmt::skip]
fn black_scholes(
    strike: f32, rate: f32, volatility: f32, years: f32,
    spot: &[f32], #[output(len_of = spot)] price: &mut [f32],
) {
    let i = vyre::index();
    let s = spot[i];
    let spread = volatility * years.sqrt();
    let d1 = ((s / strike).ln() + (rate + 0.5 * volatility * volatility) * years) / spread;
    let d2 = d1 - spread;
    price[i] = s * normal_below(d1) - strike * (-rate * years).exp() * normal_below(d2);
}

vyre::include_kernel!("../../../examples/black_scholes.vyre" as black_scholes_of_file);

fn built() -> Program {
    let number = Expr::f32;
    let mut kernel = ProgramBuilder::new("black_scholes.built");
    let [strike, rate, volatility, years] =
        ["strike", "rate", "volatility", "years"].map(|name| kernel.uniform(name, DataType::F32));
    let (spot, price) = (kernel.read("spot", DataType::F32), kernel.output("price", DataType::F32));
    kernel.over(&spot);
    kernel.region("finance.black_scholes", |body| {
        let normal_below =
            |x: Expr| number(0.5) + number(0.5) * (x * number(std::f32::consts::FRAC_1_SQRT_2)).erf();
        let i = body.bind("i", Expr::invocation_id(0));
        let s = body.bind("s", spot.at(&i));
        let spread = body.bind("spread", volatility.value() * years.value().sqrt());
        let growth = rate.value() + number(0.5) * volatility.value() * volatility.value();
        let d1 = ((s.clone() / strike.value()).log() + growth * years.value()) / spread.clone();
        let d1 = body.bind("d1", d1);
        let d2 = body.bind("d2", d1.clone() - spread);
        let discounted = strike.value() * (-rate.value() * years.value()).exp();
        body.store(&price, &i, s * normal_below(d1) - discounted * normal_below(d2));
    });
    kernel.finish()
}

fn main() -> Result<(), BackendError> {
    let runtime = Runtime::new()?;
    let spot: Vec<f32> = (1..=10_000).map(|i| i as f32 * 0.02).collect();
    let mut price = vec![0.0f32; spot.len()];
    let (mut of_file, mut of_built, mut on_host) = (price.clone(), price.clone(), price.clone());
    println!("{}", black_scholes(100.0, 0.05, 0.2, 1.0, &spot, &mut price).run(&runtime)?);
    black_scholes_of_file(100.0, 0.05, 0.2, 1.0, &spot, &mut of_file).run(&runtime)?;
    let loaded = runtime.load(built())?;
    let call = loaded.call().bind("strike", 100.0f32).bind("rate", 0.05f32).bind("volatility", 0.2f32);
    call.bind("years", 1.0f32).bind("spot", &spot).bind("price", &mut of_built).run()?;
    black_scholes::on_host(100.0, 0.05, 0.2, 1.0, &spot, &mut on_host);
    assert!(price == of_file && price == of_built && price == on_host);
    println!("at {} the option costs {}", spot[4999], price[4999]);
    Ok(())
}

#[test]
fn it_runs() -> Result<(), BackendError> {
    main()
}
