//! Checks that PTX has strict float semantics.
//!
//! `.rn` on an operation keeps ptxas from contracting it with another; without it, or with
//! `.approx` or `.ftz`, results are not those of IEEE-754. An `fma` is correct only where the
//! program has one, which the caller knows.

/// Faults in a module's float instructions; `fma` specifies whether the program has any.
pub fn lint(text: &str, fma: bool) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or_default().trim();
        let code = line
            .strip_prefix('@')
            .map_or(line, |rest| rest.split_once(char::is_whitespace).map_or("", |(_, code)| code));
        let opcode = code.trim().split([' ', '\t', ';']).next().unwrap_or_default();
        let parts: Vec<&str> = opcode.split('.').collect();
        let is_float =
            parts.last().is_some_and(|ty| matches!(*ty, "f16" | "f16x2" | "bf16" | "bf16x2" | "f32" | "f64"));
        let mut fault = |what: &str| faults.push(format!("line {}: `{line}`: {what}", number + 1));
        for forbidden in ["ftz", "approx", "full", "sat", "noftz"] {
            if parts[1..].contains(&forbidden) {
                fault(&format!("has .{forbidden}"));
            }
        }
        if !is_float {
            continue;
        }
        match parts[0] {
            "add" | "sub" | "mul" | "div" | "sqrt" | "rcp" | "fma" if !parts.contains(&"rn") => {
                fault("has no .rn")
            }
            "mad" => fault("may be rounded once or twice"),
            "fma" if !fma => fault("is contracted, since the program has no fma"),
            "sin" | "cos" | "lg2" | "ex2" | "tanh" | "rsqrt" => fault("is an approximation"),
            _ => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_rounds_otherwise_is_found() {
        let clean = [
            "add.rn.f32 %f1, %f2, %f3;",
            "@%p1 bra $L;",
            "max.f32 %f1, %f2, %f3;",
            "mad.lo.s32 %r1, %r2, %r3, %r4;",
        ];
        for line in clean {
            assert_eq!(lint(line, false), [""; 0], "{line}");
        }
        let wrong = [
            "add.f32 %f1, %f2, %f3;",
            "@%p1 mul.ftz.f32 %f1, %f2, %f3;",
            "div.approx.f32 %f1, %f2, %f3;",
            "fma.rn.f32 %f1, %f2, %f3, %f4;",
            "ex2.approx.ftz.f32 %f1, %f2;",
            "mad.rn.f32 %f1, %f2, %f3, %f4;",
        ];
        for line in wrong {
            assert!(!lint(line, false).is_empty(), "{line}");
        }
        assert_eq!(lint("fma.rn.f64 %f1, %f2, %f3, %f4;", true), [""; 0]);
    }
}
