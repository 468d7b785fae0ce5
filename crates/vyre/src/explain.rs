//! Explanations of routing: why a call goes to a backend, and everything behind that choice.

use crate::routine_core::RoutineCore;
use serde::Serialize;
use std::fmt;
use std::sync::PoisonError;
use vyre_driver::certificates::Certificate;
use vyre_driver::registry::SelectionFacts;
use vyre_driver::router::{self, Placement};

/// Why calls of a program at one size are routed as they are. Displays as text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The router's knowledge of the program at this size, and the choice that follows from it.
    pub route: router::RouteExplanation,
    /// The standing of each candidate before anything was measured, in selection order.
    pub selection: Vec<Standing>,
    /// The linked backends that are not candidates.
    pub refused: Vec<router::RefusedBackend>,
    /// Outcomes of recompiling and tuning the program, in order.
    pub code: Vec<String>,
}

/// The standing of a candidate before anything was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// The backend.
    pub backend: String,
    /// Whether its device is the processor behind a GPU interface.
    pub software_adapter: bool,
    /// Capability of its device, as one number.
    pub capability_score: u32,
    /// How well it can time kernels, from 0 to 3.
    pub timing_quality_score: u32,
    /// Its rank; lower is preferred.
    pub precedence: u32,
    /// How it was certified: in a helper process, or in this one and why.
    pub certified: String,
    /// The programs of the conformance set that it does not support.
    pub unsupported: Vec<String>,
}

impl Explanation {
    pub(crate) fn new(core: &RoutineCore, elements: u64) -> Explanation {
        let selection = core.shared.selection.read().unwrap_or_else(PoisonError::into_inner);
        Explanation {
            route: core.routes.explain(elements, Placement::Host, core.shared.now_ns()),
            selection: selection.met.iter().map(standing).collect(),
            refused: selection.refused.clone(),
            code: core.notes(),
        }
    }

    /// The explanation as JSON.
    pub fn to_json(&self) -> String {
        // Only maps with keys that are not strings could fail, and there are none.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn standing((facts, certificate): &(SelectionFacts, Certificate)) -> Standing {
    Standing {
        backend: facts.id.to_owned(),
        software_adapter: facts.software_adapter,
        capability_score: facts.capability_score,
        timing_quality_score: facts.timing_quality_score,
        precedence: facts.precedence,
        certified: certificate.how.clone(),
        unsupported: certificate.unsupported.clone(),
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.route)?;
        writeln!(f, "before any measurement, in this order:")?;
        for standing in &self.selection {
            let software = if standing.software_adapter { ", software adapter" } else { "" };
            write!(
                f,
                "  {:<12} capability {}, timing {}, rank {}{software}; certified {}",
                standing.backend,
                standing.capability_score,
                standing.timing_quality_score,
                standing.precedence,
                standing.certified
            )?;
            match standing.unsupported.as_slice() {
                [] => writeln!(f)?,
                lacking => writeln!(f, "; lacks {}", lacking.join(", "))?,
            }
        }
        for refused in &self.refused {
            writeln!(f, "  {:<12} not a candidate: {}", refused.backend, refused.reason)?;
        }
        for note in &self.code {
            writeln!(f, "code on {note}")?;
        }
        Ok(())
    }
}
