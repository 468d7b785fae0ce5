//! Machine code names the regions that it comes from.

use vyre_cpu::machine_code;
use vyre_driver::DispatchConfig;
use vyre_foundation::text::parse;

/// Regions of the code that are among `wanted`, in order, without repetitions in a row.
fn regions(text: &str, wanted: &[&str]) -> Vec<String> {
    let program = parse(text).expect("valid").in_regions();
    let code = machine_code(&program, &DispatchConfig::default()).expect("compiled");
    assert!(code.regions.is_sorted_by(|(one, _), (next, _)| one < next), "{:?}", code.regions);
    assert!(code.regions.iter().all(|(start, _)| *start < code.bytes.len()), "{:?}", code.regions);
    assert!(code.regions.windows(2).all(|pair| pair[0].1 != pair[1].1), "{:?}", code.regions);
    let names = code.regions.iter().filter_map(|(_, name)| name.as_deref());
    let mut found: Vec<String> = names.filter(|name| wanted.contains(name)).map(str::to_string).collect();
    found.dedup();
    found
}

#[test]
fn regions_are_in_the_order_of_the_kernel() {
    let text = "kernel k(x: read f32[], y: output f32[] len_of x) over x {
      region \"first\" {
        let a = sqrt(x[invocation.x])
        region \"inner\" { y[invocation.x] = a + 1.0 }
      }
      region \"second\" { y[invocation.x] = y[invocation.x] / 3.0 }
    }";
    let found = regions(text, &["first", "inner", "second"]);
    assert_eq!(found[..3], ["first", "inner", "second"], "{found:?}");
}

#[test]
fn regions_that_a_workgroup_runs_together_have_names() {
    let text =
        "kernel k(x: read u32[], y: output u32[] len_of x, shared: workgroup u32[8]) over x workgroup 8 {
      region \"gather\" { shared[local.x] = x[invocation.x] * 7 }
      region \"meet\" { barrier }
      region \"scatter\" { y[invocation.x] = shared[7 - local.x] }
    }";
    let found = regions(text, &["gather", "scatter"]);
    assert_eq!(found[..2], ["gather", "scatter"], "{found:?}");
}

#[test]
fn neighbouring_regions_of_one_name_are_one_part() {
    let many: String = (0..8_000)
        .map(|number| format!("region \"{}\" {{ sum = sum * 3 + {number} }}\n", number / 4_000))
        .collect();
    let text = format!(
        "kernel k(y: output u32[]) over y {{ let sum = invocation.x\n{many} y[invocation.x] = sum }}"
    );
    assert_eq!(regions(&text, &["0", "1"])[..2], ["0", "1"]);
}

#[test]
fn a_program_without_regions_has_the_one_it_is_wrapped_in() {
    let text = "kernel k(y: output u32[]) over y { y[invocation.x] = invocation.x * invocation.x }";
    assert_eq!(regions(text, &["vyre.program.root"]), ["vyre.program.root"]);
}
