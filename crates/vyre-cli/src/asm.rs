//! Machine code of a kernel as a listing: the instructions, with the kernel's regions beside them,
//! then the constants after them.

use vyre_cpu::MachineCode;

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{counts, listing};

/// Instruction counts.
pub(crate) struct InstructionCounts {
    pub(crate) instructions: usize,
    /// Instructions with a stack operand: spills, and memory for exchanges between lanes.
    pub(crate) stack: usize,
    pub(crate) calls: usize,
}

/// Always `None`: there is no disassembler for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn counts(_code: &[u8]) -> Option<InstructionCounts> {
    None
}

/// Hex dump of the code: there is no disassembler for this processor.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn listing(code: &MachineCode) -> String {
    let bytes = code.bytes.chunks(16).enumerate();
    bytes
        .map(|(line, bytes)| {
            let region = vyre_foundation::visible(region_at(code, 16 * line));
            format!("{:6x}  {:<48}; {region}\n", 16 * line, hex(bytes))
        })
        .collect()
}

/// Names the region of the kernel that the code at an offset belongs to.
fn region_at(code: &MachineCode, offset: usize) -> &str {
    let after = code.regions.partition_point(|(start, _)| *start <= offset);
    let region = after.checked_sub(1).and_then(|index| code.regions[index].1.as_deref());
    region.unwrap_or(AROUND)
}

/// Shown for the code around the kernel's statements, such as the loop over vectors of invocations.
const AROUND: &str = "(around the kernel)";

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{InstructionCounts, hex, region_at};
    use iced_x86::{
        Decoder, DecoderOptions, FlowControl, Formatter as _, Instruction, IntelFormatter, Register,
    };
    use std::collections::{BTreeMap, BTreeSet};
    use std::fmt::Write as _;
    use vyre_cpu::MachineCode;
    use vyre_foundation::visible;

    /// Instructions in address order, with an empty line before each jump target. The region is
    /// beside the first instruction of a part, and where it changes.
    pub(crate) fn listing(code: &MachineCode) -> String {
        let (insts, targets) = reached(&code.bytes);
        let mut text = String::new();
        let mut formatter = IntelFormatter::new();
        let (mut end, mut shown) = (0, None);
        for (&at, inst) in &insts {
            if targets.contains(&at) {
                text.push('\n');
                shown = None;
            }
            let mut line = String::new();
            formatter.format(inst, &mut line);
            let region = region_at(code, at as usize);
            // Writing to a `String` cannot fail.
            let _ = match shown.replace(region) == Some(region) {
                true => writeln!(text, "{at:6x}  {line}"),
                false => writeln!(text, "{at:6x}  {line:<44}  ; {}", visible(region)),
            };
            end = inst.next_ip();
        }
        let code = &code.bytes;
        let rest = code.get(end as usize..).unwrap_or_default();
        let start = end as usize + rest.iter().take_while(|&&byte| byte == 0xCC).count();
        for (line, constant) in code.get(start..).unwrap_or_default().chunks(32).enumerate() {
            let space = if line == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{space}{:6x}  {}", start + 32 * line, hex(constant));
        }
        text
    }

    /// Counts the reachable instructions.
    pub(crate) fn counts(code: &[u8]) -> Option<InstructionCounts> {
        let (insts, _) = reached(code);
        let count =
            |wanted: &dyn Fn(&Instruction) -> bool| insts.values().filter(|inst| wanted(inst)).count();
        Some(InstructionCounts {
            instructions: insts.len(),
            stack: count(&|inst| inst.memory_base() == Register::RSP),
            calls: count(&|inst| inst.flow_control() == FlowControl::IndirectCall),
        })
    }

    /// All instructions reachable from the start, and the jump targets.
    fn reached(code: &[u8]) -> (BTreeMap<u64, Instruction>, BTreeSet<u64>) {
        let (mut insts, mut targets, mut open) = (BTreeMap::new(), BTreeSet::new(), vec![0]);
        while let Some(at) = open.pop() {
            let Some(rest) = code.get(at as usize..) else { continue };
            if insts.contains_key(&at) {
                continue;
            }
            let inst = Decoder::with_ip(64, rest, at, DecoderOptions::NONE).decode();
            match inst.flow_control() {
                FlowControl::Return | FlowControl::Exception | FlowControl::IndirectBranch => {}
                FlowControl::UnconditionalBranch => open.push(inst.near_branch_target()),
                FlowControl::ConditionalBranch => open.extend([inst.next_ip(), inst.near_branch_target()]),
                _ => open.push(inst.next_ip()),
            }
            if inst.near_branch_target() != 0 {
                targets.insert(inst.near_branch_target());
            }
            insts.insert(at, inst);
        }
        (insts, targets)
    }
}
