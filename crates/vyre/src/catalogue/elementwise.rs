//! Element-by-element ops: maps, fill, iota, gather, scatter, hashing, option prices.

use super::plan::{Plan, PlanError};
use super::text::kernel;
use vyre_foundation::ir::{DataType, Op, Value, ValueType};

/// `y[i] = op(x[i])` for an op of the op table with one operand; `y` has the op's result type.
pub fn unary(op: Op, element: DataType, length: u32) -> Result<Plan, PlanError> {
    map("map.unary", (op, &[element]), length, |op, t, r| {
        format!(
            "kernel \"map.unary.{op}.{t}\"(x: read {t}[], y: output {r}[] len_of x) over y {{
               region \"map.unary\" {{ y[invocation.x] = {op}(x[invocation.x]) }}
             }}"
        )
    })
}

/// `z[i] = op(x[i], y[i])` for an op of the op table with two operands of one type; `z` has the
/// op's result type.
pub fn binary(op: Op, element: DataType, length: u32) -> Result<Plan, PlanError> {
    map("map.binary", (op, &[element; 2]), length, |op, t, r| {
        format!(
            "kernel \"map.binary.{op}.{t}\"(x: read {t}[], y: read {t}[], z: output {r}[] len_of x) over z {{
               region \"map.binary\" {{ z[invocation.x] = {op}(x[invocation.x], y[invocation.x]) }}
             }}"
        )
    })
}

/// `text` makes the kernel from the names of the op, the element type and the result type.
fn map(
    id: &'static str,
    (op, operands): (Op, &[DataType]),
    length: u32,
    text: impl FnOnce(&str, &str, &str) -> String,
) -> Result<Plan, PlanError> {
    let types: Vec<ValueType> = operands.iter().map(|element| element.value_type()).collect();
    let (name, element) = (op.row().name, operands.first().map_or("nothing", |element| element.name()));
    let Some(result) = op.row().signature.result(&types) else {
        let count = if operands.len() == 1 { "one" } else { "two" };
        return Err(PlanError::new(id, format!("`{name}` does not take {count} {element}")));
    };
    let program = kernel! { &text(name, element, result.name()); };
    Ok(Plan::of(id, program, &vec![length; operands.len() + 1], &[]))
}

/// `y[i] = a * x[i] + y[i]`, rounded twice.
pub fn saxpy(a: f32, length: u32) -> Plan {
    let program = kernel! {
        "kernel \"saxpy\"(a: f32 uniform, x: read f32[], y: read_write f32[]) over y {
           region \"saxpy\" {
             let i = invocation.x
             y[i] = a * x[i] + y[i]
           }
         }";
    };
    Plan::of("saxpy", program, &[length; 2], &[&a.to_le_bytes()])
}

/// `y[i] = value`.
pub fn fill(value: Value, length: u32) -> Plan {
    let element = value.ty().data_type();
    let mut plan = Plan::new("fill");
    let y = plan.output("y", element, length);
    if length > 0 {
        let text = format!(
            "kernel \"fill.{element}\"(y: output {element}[LENGTH]) over y {{
               region \"fill\" {{ y[invocation.x] = VALUE }}
             }}"
        );
        let program = kernel! { &text; LENGTH: length, VALUE: value, };
        plan.step(program, &[y]);
    }
    plan
}

/// `y[i] = start + i * step`, wrapping, in `u32`.
pub fn iota(start: u32, step: u32, length: u32) -> Plan {
    let mut plan = Plan::new("iota");
    let y = plan.output("y", DataType::U32, length);
    if length > 0 {
        let program = kernel! {
            "kernel \"iota\"(start: u32 uniform, by: u32 uniform, y: output u32[LENGTH]) over y {
               region \"iota\" { y[invocation.x] = start + invocation.x * by }
             }"; LENGTH: length,
        };
        let start = plan.constant("start", &start.to_le_bytes());
        let step = plan.constant("step", &step.to_le_bytes());
        plan.step(program, &[start, step, y]);
    }
    plan
}

/// `y[i] = x[index[i]]`; an index out of range gives zero.
pub fn gather(element: DataType, source: u32, length: u32) -> Plan {
    let text = format!(
        "kernel \"gather.{element}\"(x: read {element}[], index: read u32[], y: output {element}[] len_of index) over y {{
           region \"gather\" {{ y[invocation.x] = x[index[invocation.x]] }}
         }}"
    );
    Plan::of("gather", kernel! { &text; }, &[source, length, length], &[])
}

/// `y[index[i]] = x[i]`; an index out of range writes nothing. Indices below `target` must be
/// distinct: equal ones race.
pub fn scatter(element: DataType, target: u32, length: u32) -> Plan {
    let text = format!(
        "kernel \"scatter.{element}\"(x: read {element}[], index: read u32[], y: read_write {element}[]) over x {{
           region \"scatter\" {{ y[index[invocation.x]] = x[invocation.x] }}
         }}"
    );
    Plan::of("scatter", kernel! { &text; }, &[length, length, target], &[])
}

/// The MurmurHash3 finaliser of every element.
pub fn murmur3(length: u32) -> Plan {
    let program = kernel! {
        "fn finalize(h: u32) -> u32 {
           let x = h ^ (h >> 16)
           x = x * 0x85ebca6b
           x = x ^ (x >> 13)
           x = x * 0xc2b2ae35
           x ^ (x >> 16)
         }
         kernel \"murmur3\"(x: read u32[], y: output u32[] len_of x) over y {
           region \"murmur3\" { y[invocation.x] = finalize(x[invocation.x]) }
         }";
    };
    Plan::of("murmur3", program, &[length; 2], &[])
}

/// Prices of European call and put options: `call` and `put` from `spot`, `strike` and `years`, at
/// one rate and volatility, with the normal distribution from `erf`.
pub fn black_scholes(rate: f32, volatility: f32, length: u32) -> Plan {
    let program = kernel! {
        "fn normal(x: f32) -> f32 { 0.5 * (1.0 + erf(x * 0.70710678)) }
         kernel \"black_scholes\"(
           rate: f32 uniform, volatility: f32 uniform, spot: read f32[], strike: read f32[], years: read f32[],
           call: output f32[] len_of spot, put: output f32[] len_of spot,
         ) over call {
           region \"black_scholes\" {
             let i = invocation.x
             let s = spot[i]
             let k = strike[i]
             let t = years[i]
             let spread = volatility * sqrt(t)
             let d1 = (log(s / k) + (rate + 0.5 * volatility * volatility) * t) / spread
             let d2 = d1 - spread
             let discounted = k * exp(-(rate * t))
             let n1 = normal(d1)
             let n2 = normal(d2)
             call[i] = s * n1 - discounted * n2
             put[i] = discounted * (1.0 - n2) - s * (1.0 - n1)
           }
         }";
    };
    Plan::of("black_scholes", program, &[length; 5], &[&rate.to_le_bytes(), &volatility.to_le_bytes()])
}
