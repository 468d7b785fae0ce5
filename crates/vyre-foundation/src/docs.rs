//! Documentation pages generated from the tables.
//!
//! `cargo xtask docs` writes them to the folder `docs`; a test fails if that folder does not match
//! the tables.

use crate::diagnostics::{Code, Severity};
use crate::ops::{AtomicOp, Law, Op, OpRow, Spelling, SubgroupOp, WorkgroupOp};

/// The line before the part of `ops.md` that is measured, not generated.
pub const MEASURED_BEGIN: &str = "<!-- errors: written by `cargo xtask ulp` -->";
/// The line after the part of `ops.md` that is measured, not generated.
pub const MEASURED_END: &str = "<!-- end of errors -->";

/// A generated page.
#[derive(Debug)]
pub struct Page {
    /// The file name in the folder `docs`.
    pub file: &'static str,
    /// The generated text; the measured part is empty.
    pub text: String,
}

/// All generated pages.
pub fn pages() -> [Page; 2] {
    [Page { file: "ops.md", text: ops_markdown() }, Page { file: "errors.md", text: errors_markdown() }]
}

impl Page {
    /// The page with the measured part taken from `existing`.
    pub fn over(&self, existing: &str) -> String {
        match (split_measured(&self.text), split_measured(existing)) {
            (Some([head, _, tail]), Some([_, measured, _])) => format!("{head}{measured}{tail}"),
            _ => self.text.clone(),
        }
    }
}

/// The text before, in and after the measured part.
fn split_measured(text: &str) -> Option<[&str; 3]> {
    let start = text.find(MEASURED_BEGIN)? + MEASURED_BEGIN.len();
    let end = start + text[start..].find(MEASURED_END)?;
    Some([&text[..start], &text[start..end], &text[end..]])
}

/// The op tables: pure ops by family, atomics, subgroup ops.
pub fn ops_markdown() -> String {
    let mut page = String::from(
        "# Ops\n\nGenerated from the op tables by `cargo xtask docs`; do not edit.\n\nWhat each op computes is defined \
         by `vyre_foundation::ops::eval`, bit for bit. *Tag* is the op's number in the wire format. A law holds by \
         bits for every operand of every type it is stated for, NaN, infinities and signed zeros included. *Error* bounds \
         the distance from the true value, in units in the last place, of an op that is an expansion in the exact ops. \
         *Loose* is how many units in the last place a backend that is not strict may be off; a strict one is never \
         off.\n",
    );
    let mut families: Vec<&str> = Vec::new();
    for family in Op::ALL.iter().map(|op| op.row().family) {
        if !families.contains(&family) {
            families.push(family);
        }
    }
    for family in families {
        page += &format!("\n## `primitive.{family}.*`\n\n");
        page += "| op | text | tag | takes | laws | error | loose | what it gives |\n|---|---|---|---|---|---|---|---|\n";
        let rows = Op::ALL.iter().map(|op| op.row()).filter(|row| row.family == family);
        page.extend(rows.map(op_line));
    }
    page += "\n## `primitive.atomic.*`\n\nOn an element of type u32, i32, u64 or i64 in read_write, output or workgroup \
             memory; each gives the value that was there before.\n\n| op | text | tag | what it does |\n|---|---|---|---|\n";
    page.extend(AtomicOp::ALL.into_iter().map(atomic_line));
    page += "\n## `primitive.subgroup.*`\n\n| op | text | tag | what it gives |\n|---|---|---|---|\n";
    page.extend(SubgroupOp::all().map(subgroup_line));
    page += "\n## `primitive.workgroup.*`\n\n| op | text | tag | what it gives |\n|---|---|---|---|\n";
    page.extend(WorkgroupOp::ALL.into_iter().map(workgroup_line));
    page += &format!(
        "\n## Measured errors\n\nHow far the expansions of transcendental ops are from the true values, measured over \
         their inputs.\n\n{MEASURED_BEGIN}\n{MEASURED_END}\n"
    );
    page
}

fn op_line(row: &OpRow) -> String {
    let OpRow { name, tag, doc, .. } = row;
    let text = match row.spelling {
        Spelling::Infix(symbol, _) => format!("x {symbol} y").replace('|', "\\|"),
        Spelling::Prefix(symbol) => format!("{symbol}x"),
        Spelling::Call => call(name, row.signature.arity()),
    };
    let loose = if row.loose_ulp == 0 { "exact".to_string() } else { row.loose_ulp.to_string() };
    let bounds = row.expansion_error.filter(|bounds| bounds[0] > 0.0);
    let error = bounds.map(|[single, double]| format!("f32: {single}<br>f64: {double}")).unwrap_or_default();
    let (takes, laws) = (row.signature.describe(), laws(row));
    format!("| `{name}` | `{text}` | {tag} | {takes} | {laws} | {error} | {loose} | {doc} |\n")
}

fn laws(row: &OpRow) -> String {
    let list = |laws: &[Law]| laws.iter().map(|law| law.describe()).collect::<Vec<_>>().join("; ");
    let parts = [("integers", row.integer_laws), ("floats", row.float_laws)];
    let stated = parts.into_iter().filter(|(_, laws)| !laws.is_empty());
    stated.map(|(on, laws)| format!("{on}: {}", list(laws))).collect::<Vec<_>>().join("<br>")
}

fn atomic_line(op: AtomicOp) -> String {
    let row = op.row();
    let operands = [", ", ", value", ", expected, new"][op.operands()].trim_end_matches([',', ' ']);
    let text = format!("atomic_{}(buffer, index{operands})", row.name);
    format!("| `{}` | `{text}` | {} | {} |\n", row.name, row.tag, row.doc)
}

fn subgroup_line(op: SubgroupOp) -> String {
    let row = op.row();
    let text = call(&format!("subgroup_{}", row.name), row.arity);
    format!("| `{}` | `{text}` | {} | {} |\n", row.name, row.tag, row.doc)
}

fn workgroup_line(op: WorkgroupOp) -> String {
    let row = op.row();
    let text = call(&format!("workgroup_{}", row.name), row.arity);
    format!("| `{}` | `{text}` | {} | {} |\n", row.name, row.tag, row.doc)
}

fn call(name: &str, arity: usize) -> String {
    format!("{name}({})", ["x", "y", "z", "w"][..arity].join(", "))
}

/// The table of diagnostic codes.
pub fn errors_markdown() -> String {
    let mut page = String::from(
        "# Diagnostics\n\nGenerated from the table of codes by `cargo xtask docs`; do not edit.\n\nA code is stable and \
         never used again for something else. Faults refuse the program; remarks do not.\n",
    );
    for &code in Code::ALL {
        let severity = match code.severity() {
            Severity::Error => "",
            Severity::Warning => " (a remark)",
        };
        page += &format!("\n## {code}: {}{severity}\n\n{}\n", code.title(), code.explain());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_measured_part_is_kept() {
        let page = Page { file: "p.md", text: format!("new\n{MEASURED_BEGIN}\n{MEASURED_END}\nend\n") };
        let check = |existing: &str, expected: &str| assert_eq!(page.over(existing), expected);
        let measured = format!("{MEASURED_BEGIN}\n1.5 ULP\n{MEASURED_END}\n");
        check(&format!("old\n{measured}"), &format!("new\n{measured}end\n"));
        check("old", &page.text);
        check(MEASURED_BEGIN, &page.text);
    }

    #[test]
    fn every_row_has_a_line() {
        let page = ops_markdown();
        for &op in Op::ALL {
            assert!(page.contains(&format!("| `{}` |", op.row().name)), "{op:?}");
        }
        // Cells are separated by ` | `; a bar inside a cell is escaped.
        let lines = page.lines().filter(|line| line.starts_with("| `"));
        for line in lines {
            let cells = line.replace("\\|", "").matches('|').count();
            assert!(cells == 9 || cells == 5, "{line}");
        }
        for code in Code::ALL {
            assert!(errors_markdown().contains(&format!("\n## {code}: ")), "{code}");
        }
    }
}
