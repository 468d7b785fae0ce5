//! SPIR-V and GLSL. The filetests in `filetests/import` are WGSL; each also runs through SPIR-V.

use std::path::Path;
use vyre_conform::filetest::{Command, FileTest};
use vyre_foundation::diagnostics::{Code, Diagnostics};
use vyre_foundation::ir::Program;
use vyre_import::{Options, Source, import, mended};
use vyre_reference::{RunOptions, run};

/// Compiles a WGSL shader without overrides to SPIR-V with naga.
fn spirv(text: &str) -> Vec<u32> {
    let module = naga::front::wgsl::parse_str(&mended(text)).expect("the shader is read");
    let mut validator = naga::valid::Validator::new(Default::default(), naga::valid::Capabilities::all());
    let info = validator.validate(&module).expect("the shader is valid");
    let options = naga::back::spv::Options {
        lang_version: (1, 3),
        flags: naga::back::spv::WriterFlags::DEBUG,
        capabilities: None,
        ..Default::default()
    };
    naga::back::spv::write_vec(&module, &info, &options, None).expect("words are written")
}

fn through_spirv(source: &str) -> Result<Program, Diagnostics> {
    Ok(import(Source::Spirv(&spirv(source)), &Options::default())?.program)
}

#[test]
fn filetests_through_spirv() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../filetests/import");
    let (mut count, mut failures) = (0, Vec::new());
    for entry in std::fs::read_dir(folder).expect("filetests").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(entry.path()).expect("a text");
        // Overrides have to be replaced before SPIR-V is written, and in SPIR-V
        // `workgroupUniformLoad` is a plain load.
        if name.starts_with("refused")
            || source.contains("override ")
            || source.contains("workgroupUniformLoad")
        {
            continue;
        }
        let test = FileTest::parse_with(&source, through_spirv).expect("a filetest");
        match test.check(&Command::Interpret, &[]) {
            Ok(()) => count += 1,
            // naga writes SPIR-V that it cannot read: bytes, their dot products, and
            // `quantizeToF16`.
            Err(message) if message.contains("S001") => {}
            Err(message) => failures.push(format!("{name}: {message}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count > 20, "only {count} files");
}

/// Runs a program with one read_write buffer on the interpreter.
fn run_on(program: &Program, y: &[u32]) -> Vec<u32> {
    let kernel = program.validate().unwrap_or_else(|faults| panic!("{faults}"));
    let bytes: Vec<u8> = y.iter().flat_map(|word| word.to_le_bytes()).collect();
    let done = run(&kernel, &[&bytes], &RunOptions::default()).expect("it runs");
    done.outputs[0].chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

const GLSL: &str = "#version 450
layout(local_size_x = 4) in;
layout(set = 0, binding = 0) buffer Data { uint y[]; };
#define TWICE(x) ((x) * 2u)
uint fold(uint a, inout uint carry) { carry += a; if (a == 3u) return 100u; return TWICE(a) + carry; }
void main() {
    uint i = gl_GlobalInvocationID.x;
    uint carry = 1u;
    for (int k = 0; k < 3; k++) { if (k == 1) continue; y[i] = fold(y[i], carry); }
    switch (i) { case 1u: y[i] += 1000u; case 2u: y[i] += 10000u; break; default: y[i] += 7u; }
}";

#[test]
fn glsl() {
    let imported = import(Source::Glsl(GLSL), &Options::default()).expect("GLSL is read");
    // 0: 0+1=1, then 2+2=4, and 7. 1: 2+2=4, 8+6=14, and both cases. 2: 4+3=7, 14+10=24. 3: 100,
    // 200+104=304.
    assert_eq!(run_on(&imported.program, &[0, 1, 2, 3]), [11, 11014, 10024, 311]);
    let faults =
        import(Source::Glsl("#version 450\nvoid main() { x = 1; }"), &Options::default()).unwrap_err();
    assert_eq!(faults.iter().next().map(|fault| fault.code), Some(Code::UnreadableShader));
    assert!(faults.render("a.comp").contains("a.comp:2:"), "{}", faults.render("a.comp"));
}

#[test]
fn macros_that_grow_are_refused() {
    let mut text = String::from("#version 450\n#define A0 1 +\n");
    for k in 1..40 {
        text += &format!("#define A{k} A{0} A{0}\n", k - 1);
    }
    text += "void main() { int x = A39 1; }";
    let faults = import(Source::Glsl(&text), &Options::default()).unwrap_err();
    assert_eq!(faults.iter().next().map(|fault| fault.code), Some(Code::ShaderTooLarge));
}

/// Turns the constant 21 of a module into a specialisation constant with id 5.
fn with_specialisation(mut words: Vec<u32>) -> Vec<u32> {
    let mut at = 5;
    let mut types_at = None;
    let mut constant = None;
    while at < words.len() {
        let (length, opcode) = ((words[at] >> 16) as usize, words[at] & 0xffff);
        if (19..=43).contains(&opcode) && types_at.is_none() {
            types_at = Some(at);
        }
        if opcode == 43 && words[at + 3] == 21 {
            words[at] = (words[at] & 0xffff_0000) | 50;
            constant = Some(words[at + 2]);
        }
        at += length;
    }
    let (types_at, constant) = (types_at.expect("types"), constant.expect("the constant 21"));
    words.splice(types_at..types_at, [4 << 16 | 71, constant, 1, 5]);
    words
}

#[test]
fn specialisation_constants() {
    let shader = "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
        @compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) { y[id.x] = y[id.x] * 21u; }";
    let words = with_specialisation(spirv(shader));
    let given = |set: &[(&str, f64)]| {
        let set = set.iter().map(|(name, value)| (name.to_string(), *value)).collect();
        import(Source::Spirv(&words), &Options { entry: None, set })
    };
    assert_eq!(run_on(&given(&[]).expect("words are read").program, &[2]), [42]);
    assert_eq!(run_on(&given(&[("5", 4.0)]).expect("words are read").program, &[2]), [8]);
    let faults = given(&[("6", 1.0)]).unwrap_err();
    assert_eq!(faults.iter().next().map(|fault| fault.code), Some(Code::ShaderConstant));
}

#[test]
fn hostile_shapes() {
    let deep = |open: &str, close: &str, count: usize| {
        format!(
            "@compute @workgroup_size(1) fn main() {{ var x = 1; {} {} }}",
            open.repeat(count),
            close.repeat(count)
        )
    };
    let calls = {
        // Each function calls the previous one twice: inlined, there are 2^30 calls.
        let mut text = "fn f0(x: u32) -> u32 { return x * 3u; }\n".to_string();
        for k in 1..30 {
            text += &format!("fn f{k}(x: u32) -> u32 {{ return f{0}(x) + f{0}(x + 1u); }}\n", k - 1);
        }
        text + "@group(0) @binding(0) var<storage, read_write> y: array<u32>;
            @compute @workgroup_size(1) fn main() { y[0] = f29(1u); }"
    };
    let large = format!("@compute @workgroup_size(1) fn main() {{ {} }}", "let x = 1; ".repeat(200_000));
    let huge_array =
        "@compute @workgroup_size(1) fn main() { var a: array<array<f32, 65535>, 65535>; a[0][0] = 1.0; }";
    for text in [
        deep("if (x == 1) {", "}", 90),
        deep("{", "}", 5000),
        deep("x = (", ")", 3000),
        deep("loop {", "}", 99),
        calls,
        large,
        huge_array.into(),
    ] {
        // The result is a program or a diagnostic.
        if let Ok(imported) = import(Source::Wgsl(&text), &Options::default()) {
            let _ = imported.program.validate();
        }
    }
}
