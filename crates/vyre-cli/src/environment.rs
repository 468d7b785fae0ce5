//! Warnings about environment variables with invalid values, so that a typing error does not go
//! unnoticed.

use crate::output::{Paint, painted, warn};
use std::ffi::OsStr;

/// Variable, a description of its valid values, and a predicate that accepts them.
struct Variable {
    name: &'static str,
    takes: &'static str,
    fits: fn(&str) -> bool,
}

/// Variables with a fixed set of values; folders, files and lists of backends are checked where
/// they are used.
const VARIABLES: [Variable; 8] = [
    Variable { name: "VYRE_AUTOTUNER", takes: "on or off", fits: is_switch },
    Variable { name: "VYRE_FROZEN", takes: "on or off", fits: is_switch },
    Variable { name: "VYRE_CACHE_LIMIT", takes: "a whole number of MiB", fits: is_number },
    Variable { name: "VYRE_HELPER_LIMIT", takes: "a whole number of seconds", fits: is_number },
    Variable {
        name: "VYRE_THREADS",
        takes: "a whole number of at least 1",
        fits: |text| is_number(text) && text.trim() != "0",
    },
    Variable {
        name: "VYRE_CPU_LANES",
        takes: "1, 8 or 16",
        fits: |text| matches!(text.trim(), "1" | "8" | "16"),
    },
    Variable {
        name: "VYRE_CPU_PAST_CACHES",
        takes: "always or never",
        fits: |text| matches!(text, "always" | "never"),
    },
    Variable { name: "VYRE_CPU_PERF_MAP", takes: "1", fits: |text| text == "1" },
];

fn is_switch(text: &str) -> bool {
    text.eq_ignore_ascii_case("on") || text.eq_ignore_ascii_case("off")
}

fn is_number(text: &str) -> bool {
    text.trim().parse::<u64>().is_ok()
}

/// Warns about invalid values; an empty value counts as unset.
pub(crate) fn check() {
    for variable in &VARIABLES {
        if let Some(warning) = std::env::var_os(variable.name).and_then(|value| variable.fault(&value)) {
            warn(&format!("{} {warning}", painted("warning:", Paint::Yellow)));
        }
    }
}

impl Variable {
    fn fault(&self, value: &OsStr) -> Option<String> {
        let fits = value.is_empty() || value.to_str().is_some_and(self.fits);
        let shown = value.to_string_lossy();
        (!fits).then(|| format!("{}={shown:?} is ignored: it takes {}", self.name, self.takes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_values_are_named() {
        let fault = |name: &str, value: &str| {
            let variable = VARIABLES.iter().find(|variable| variable.name == name).expect("a variable");
            variable.fault(OsStr::new(value))
        };
        for (name, value) in [("VYRE_AUTOTUNER", "ON"), ("VYRE_THREADS", "2"), ("VYRE_FROZEN", "")] {
            assert_eq!(fault(name, value), None, "{name}={value}");
        }
        let said = fault("VYRE_AUTOTUNER", "yes").expect("a warning");
        assert_eq!(said, "VYRE_AUTOTUNER=\"yes\" is ignored: it takes on or off");
        for (name, value) in [
            ("VYRE_THREADS", "0"),
            ("VYRE_CPU_LANES", "7"),
            ("VYRE_CPU_PAST_CACHES", "maybe"),
            ("VYRE_CACHE_LIMIT", "-1"),
        ] {
            assert!(fault(name, value).is_some(), "{name}={value}");
        }
    }
}
