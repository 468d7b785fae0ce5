//! `vyre explain FILE --code`: describes a kernel's machine code on `cpu`, to show why it is slow.

use crate::asm;
use crate::output::Ending;
use crate::source::LoadedProgram;
use vyre_cpu::{AccessKind, CodeReport, MemoryAccess, Reach, avx512_rejected, code_report, machine_code};
use vyre_driver::DispatchConfig;

/// Describes the code as text and as JSON.
pub(crate) fn explain(loaded: &LoadedProgram) -> Result<(String, serde_json::Value), Ending> {
    let config = DispatchConfig::default();
    let report = code_report(&loaded.program, &config)?;
    let code = machine_code(&loaded.program, &config)?.bytes;
    let counts = asm::counts(&code);
    let mut lines = vec![format!("{} lanes, {} bytes of machine code", report.lanes, code.len())];
    lines.extend(avx512_rejected().map(|reason| format!("code for AVX2, since {reason}")));
    if let Some(counts) = &counts {
        let (instructions, stack, calls) = (counts.instructions, counts.stack, counts.calls);
        lines.push(format!("{instructions} instructions, {stack} of them touch the stack; {calls} calls, off the straight path"));
    }
    lines.push(checks(&report));
    if report.divergent_branches > 0 {
        let count = report.divergent_branches;
        lines.push(format!(
            "{count} branches or loops run as long as any lane needs them; the other lanes wait"
        ));
    }
    lines.extend(report.accesses.iter().map(line));
    let text = format!("code      {}", lines.join("\n          "));
    let json = serde_json::json!({
        "lanes": report.lanes,
        "bytes": code.len(),
        "instructions": counts.as_ref().map(|counts| counts.instructions),
        "stack_accesses": counts.as_ref().map(|counts| counts.stack),
        "calls": counts.as_ref().map(|counts| counts.calls),
        "unchecked": report.is_unchecked(),
        "requirements": report.requirements,
        "divergent_branches": report.divergent_branches,
        "accesses": report.accesses.iter().map(access_json).collect::<Vec<_>>(),
    });
    Ok((text, json))
}

fn checks(report: &CodeReport) -> String {
    let checked = report.accesses.iter().filter(|access| access.checked).count();
    let when = match report.requirements {
        0 => "in every dispatch".to_string(),
        1 => "in dispatches that meet 1 condition, which is checked before they start".into(),
        count => format!("in dispatches that meet {count} conditions, which are checked before they start"),
    };
    match (checked, report.accesses.len()) {
        (0, _) => format!("no index is checked, {when}"),
        (checked, all) => format!("{checked} of {all} indices are checked, {when}"),
    }
}

fn touch(access: &MemoryAccess) -> &'static str {
    match access.touch {
        AccessKind::Load => "load",
        AccessKind::Store => "store",
        AccessKind::Atomic => "atomic",
    }
}

fn reach(access: &MemoryAccess) -> &'static str {
    match access.reach {
        Reach::One => "one element for all lanes",
        Reach::Neighbours => "adjacent elements, all lanes at once",
        Reach::Strided => "at a constant stride, by shuffles where it is small",
        Reach::Rows => "a row for each lane, eight elements at a time",
        Reach::LaneByLane => "lane by lane",
    }
}

fn line(access: &MemoryAccess) -> String {
    let mut words = vec![reach(access).to_string()];
    if access.masked {
        words.push("in some lanes only".into());
    }
    if access.loops > 0 {
        words.push(format!("{} loops deep", access.loops));
    }
    if access.checked {
        words.push(format!("checked: its index is not known to stay below the length of `{}`", access.place));
    }
    format!("{:<6} {}: {}", touch(access), access.place, words.join(", "))
}

fn access_json(access: &MemoryAccess) -> serde_json::Value {
    serde_json::json!({
        "touch": touch(access),
        "place": access.place,
        "reach": match access.reach {
            Reach::One => "one",
            Reach::Neighbours => "neighbours",
            Reach::Strided => "strided",
            Reach::Rows => "rows",
            Reach::LaneByLane => "lane by lane",
        },
        "checked": access.checked,
        "masked": access.masked,
        "loops": access.loops,
    })
}
