//! Tests over the whole table: names and tags, types, laws, and precomputed values.

mod laws;
mod values;

use super::*;
use crate::ir::Builtin;
use crate::types::{DataType, Value, ValueType};
use std::collections::HashSet;

/// Edge cases: limits and their neighbours, signed zeros, subnormals, infinities, NaNs.
fn edge_values(ty: ValueType) -> Vec<Value> {
    let bits: Vec<u64> = match ty {
        ValueType::Bool => vec![0, 1],
        ValueType::U32 | ValueType::I32 => {
            vec![
                0,
                1,
                2,
                3,
                7,
                31,
                32,
                33,
                0x0001_0000,
                0x7FFF_FFFF,
                0x8000_0000,
                0x8000_0001,
                0xFFFF_FFFE,
                0xFFFF_FFFF,
            ]
        }
        ValueType::U64 | ValueType::I64 => {
            let low = [0, 1, 2, 3, 63, 64, 65, 0xFFFF_FFFF, 1 << 32, (1 << 53) + 1];
            let high = [i64::MAX as u64, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX];
            [&low[..], &high[..]].concat()
        }
        ValueType::F32 => {
            let positive = [
                0.0,
                1e-45,
                f32::MIN_POSITIVE,
                0.5,
                1.0,
                1.5,
                2.5,
                3.0,
                16_777_217.0,
                2_147_483_648.0,
                f32::MAX,
                f32::INFINITY,
                f32::NAN,
            ];
            positive.iter().flat_map(|x| [x.to_bits().into(), (-x).to_bits().into()]).collect()
        }
        ValueType::F64 => {
            let positive = [
                0.0,
                5e-324,
                f64::MIN_POSITIVE,
                0.5,
                1.0,
                1.5,
                2.5,
                3.0,
                9_007_199_254_740_993.0,
                1e300,
                f64::MAX,
                f64::INFINITY,
                f64::NAN,
            ];
            positive.iter().flat_map(|x| [x.to_bits(), (-x).to_bits()]).collect()
        }
    };
    bits.into_iter().map(|bits| Value::from_bits(ty, bits)).collect()
}

/// Every list of `length` items.
fn tuples<T: Copy>(items: &[T], length: usize) -> Vec<Vec<T>> {
    if length == 0 {
        return vec![Vec::new()];
    }
    let shorter = tuples(items, length - 1);
    items.iter().flat_map(|&item| shorter.iter().map(move |rest| [&[item], &rest[..]].concat())).collect()
}

/// Every choice of one item from each list.
fn choices(lists: &[Vec<Value>]) -> Vec<Vec<Value>> {
    let Some((last, before)) = lists.split_last() else { return vec![Vec::new()] };
    let before = choices(before);
    before.iter().flat_map(|start| last.iter().map(move |&value| [&start[..], &[value]].concat())).collect()
}

fn check_unique<T: std::fmt::Debug + Clone + Eq + std::hash::Hash>(
    what: &str,
    items: impl IntoIterator<Item = T>,
) {
    let mut seen = HashSet::new();
    for item in items {
        assert!(seen.insert(item.clone()), "{what}: {item:?} stands for two things");
    }
}

#[test]
fn tags_and_names_stand_for_one_op_each() {
    for &op in Op::ALL {
        let row = op.row();
        assert_eq!(row.op, op);
        assert_eq!((Op::from_name(row.name), Op::from_tag(row.tag)), (Some(op), Some(op)));
    }
    for op in AtomicOp::ALL {
        let row = op.row();
        assert_eq!(row.op, op);
        assert_eq!((AtomicOp::from_name(row.name), AtomicOp::from_tag(row.tag)), (Some(op), Some(op)));
    }
    for op in SubgroupOp::all() {
        let row = op.row();
        assert_eq!((SubgroupOp::from_name(&row.name), SubgroupOp::from_tag(row.tag)), (Some(op), Some(op)));
    }
    for op in WorkgroupOp::ALL {
        let row = op.row();
        assert_eq!((WorkgroupOp::from_name(row.name), WorkgroupOp::from_tag(row.tag)), (Some(op), Some(op)));
    }
    check_unique("tags of workgroup ops", WorkgroupOp::ALL.map(|op| op.row().tag));
    check_unique("tags of ops", Op::ALL.iter().map(|op| op.row().tag));
    check_unique("tags of atomics", AtomicOp::ALL.map(|op| op.row().tag));
    check_unique("tags of subgroup ops", SubgroupOp::all().map(|op| op.tag()));
    check_unique("ids", all_op_ids());
    assert_eq!((Op::from_name("no such op"), Op::from_tag(0), Op::from_tag(255)), (None, None, None));
}

/// In text, only the name distinguishes an op, a builtin and a buffer's length.
#[test]
fn names_in_text_stand_for_one_thing_each() {
    let ops = Op::ALL.iter().map(|op| op.row().name.to_string());
    let atomics = AtomicOp::ALL.map(|op| format!("atomic_{}", op.row().name));
    let subgroups = SubgroupOp::all().map(|op| format!("subgroup_{}", op.row().name));
    let builtins = Builtin::ALL.map(|builtin| builtin.name().to_string());
    let workgroups = WorkgroupOp::ALL.map(|op| format!("workgroup_{}", op.row().name));
    let others = builtins.into_iter().chain(["len", "f32_bits", "f64_bits"].map(String::from));
    let callables = ops.chain(atomics).chain(subgroups).chain(workgroups).chain(others);
    check_unique("names in text", callables);
    let symbols = Op::ALL.iter().filter_map(|op| match op.row().spelling {
        Spelling::Infix(symbol, _) => Some(symbol),
        Spelling::Prefix(_) | Spelling::Call => None,
    });
    check_unique("infix symbols", symbols);
    // A conversion, and no other op, is called by the name of its type.
    for ty in DataType::ALL {
        let expected = ty.value_type().data_type() == ty;
        assert_eq!(Op::from_name(ty.name()), expected.then(|| Op::cast(ty.value_type())), "{ty}");
    }
}

#[test]
fn rows_have_one_sentence() {
    let pure = Op::ALL.iter().map(|op| op.row().doc);
    let others =
        AtomicOp::ALL.map(|op| op.row().doc).into_iter().chain(SubgroupOp::all().map(|op| op.row().doc));
    for doc in pure.chain(others).chain(WorkgroupOp::ALL.map(|op| op.row().doc)) {
        assert!(doc.ends_with('.') && !doc.contains('\n'), "{doc:?}");
    }
}

/// The evaluator returns a value, of the signature's type, exactly where the signature accepts.
#[test]
fn eval_is_total_where_the_signature_accepts() {
    for &op in Op::ALL {
        let signature = op.row().signature;
        for arity in 0..=4 {
            for types in tuples(&ValueType::ALL, arity) {
                let expected = signature.result(&types);
                assert!(expected.is_none() || arity == signature.arity(), "{op:?} {types:?}");
                let edges: Vec<Vec<Value>> =
                    types.iter().map(|&ty| some_edges(ty, arity, expected)).collect();
                for args in choices(&edges) {
                    check_result(op, &args, expected);
                }
            }
        }
    }
}

/// All edge values if the op accepts the types and the product stays small, else a few.
fn some_edges(ty: ValueType, arity: usize, accepted: Option<ValueType>) -> Vec<Value> {
    let edges = edge_values(ty);
    let kept = match (accepted, arity) {
        (Some(_), 0..=2) => edges.len(),
        (Some(_), _) => 10,
        (None, _) => 2,
    };
    let step = edges.len().div_ceil(kept);
    edges.into_iter().step_by(step).collect()
}

fn check_result(op: Op, args: &[Value], expected: Option<ValueType>) {
    let result = eval(op, args);
    assert_eq!(result.map(Value::ty), expected, "{op:?} of {args:?}");
    assert_eq!(result.map(Value::canonical), result, "{op:?} of {args:?} is a NaN with a payload");
}

#[test]
fn atomics_combine_by_a_row_that_takes_their_operands() {
    for op in AtomicOp::ALL {
        let combine = op.row().combine;
        let plain = [AtomicOp::Exchange, AtomicOp::CompareExchange, AtomicOp::Load, AtomicOp::Store];
        assert_eq!(combine.is_none(), plain.contains(&op), "{op:?}");
        for ty in ValueType::ALL.into_iter().filter(|ty| ty.is_integer()) {
            let result = combine.map(|combine| combine.row().signature.result(&[ty, ty]));
            assert!(matches!(result, None | Some(Some(_))), "{op:?} on {ty}");
        }
    }
}

/// The initial value of an exclusive scan is an identity of its op, except that `0.0 + -0.0` is
/// `0.0`.
#[test]
fn scans_start_from_an_identity() {
    for combine in Combine::ALL {
        for ty in ValueType::ALL {
            if SubgroupOp::Exclusive(combine).result(&[ty]).is_none() {
                continue;
            }
            for value in edge_values(ty).into_iter().map(Value::canonical) {
                let result = eval(combine.op(), &[combine.identity(ty), value]);
                let number = |value: Value| match value {
                    Value::F32(0.0) => Value::F32(0.0),
                    Value::F64(0.0) => Value::F64(0.0),
                    other => other,
                };
                let is_nan = eval(Op::IsNan, &[value]) == Some(Value::Bool(true));
                let lost = is_nan && matches!(combine, Combine::Min | Combine::Max);
                assert!(lost || result.map(number) == Some(number(value)), "{combine:?} on {value:?}");
            }
        }
    }
}

/// Every op with an expansion has a function for each type of its first operand, and is in the
/// `expanded_op` pattern.
#[test]
fn expansions_are_complete() {
    for &op in Op::ALL {
        let row = op.row();
        assert_eq!(matches!(op, crate::expanded_op!()), row.expansion_error.is_some(), "{op:?}");
        let mut taken = HashSet::new();
        for types in tuples(&ValueType::ALL, row.signature.arity()) {
            if row.signature.result(&types).is_some() {
                taken.insert(types[0]);
            }
        }
        for ty in ValueType::ALL {
            let wanted = row.expansion_error.is_some() && taken.contains(&ty);
            let ops = crate::math::expansion(op, ty).into_iter().flat_map(|expansion| expansion.ops());
            let composed: Vec<Op> = ops.filter(|used| used.row().expansion_error.is_some()).collect();
            assert!(composed.is_empty(), "{op:?} on {ty} uses {composed:?}, which are expanded themselves");
            assert_eq!(crate::math::expansion(op, ty).is_some(), wanted, "{op:?} on {ty}");
        }
    }
}

/// Conversions match loads and stores, for all bit patterns and for the values around midpoints
/// between two.
#[test]
fn narrow_floats_convert_as_in_storage() {
    for bits in 0..=0xFFFF_u32 {
        let widened = |element: DataType| match element.load(&(bits as u16).to_le_bytes()) {
            Some(Value::F32(value)) => value,
            other => panic!("{element} loads as {other:?}"),
        };
        for (read, write, value) in [
            (Op::BitsF16, Op::F16Bits, widened(DataType::F16)),
            (Op::BitsBf16, Op::Bf16Bits, widened(DataType::Bf16)),
        ] {
            let canonical = Value::F32(value).canonical();
            assert_eq!(eval(read, &[Value::U32(bits)]), Some(canonical), "{read:?} of {bits:#x}");
            assert_eq!(
                eval(read, &[Value::U32(bits | 0xABCD_0000)]),
                Some(canonical),
                "{read:?} of {bits:#x}"
            );
            for near in [-0x1001, -0x1000, -0xFFF, -1, 0, 1, 0xFFF, 0x1000, 0x7FFF, 0x8000, 0x8001] {
                let x = f32::from_bits(value.to_bits().wrapping_add_signed(near));
                let element = if write == Op::F16Bits { DataType::F16 } else { DataType::Bf16 };
                let expected = Value::U32(element.narrow(Value::F32(x)) as u32);
                assert_eq!(eval(write, &[Value::F32(x)]), Some(expected), "{write:?} of {x:e}");
            }
        }
    }
}
