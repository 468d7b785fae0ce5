//! When to change a running kernel's workgroup size, based on feedback from its last runs.

/// Feedback from the runs since the last change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TunerFeedback {
    /// Number of runs of each opcode, as (opcode, count).
    pub per_opcode_counts: Vec<(u32, u32)>,
    /// Duration of the runs in microseconds.
    pub wall_time_us: u64,
    /// Idle time of the device in microseconds.
    pub idle_us: u64,
    /// The workgroup size of the runs on the first axis.
    pub observed_workgroup_size_x: u32,
    /// Items processed per microsecond.
    pub observed_throughput_per_us: f64,
}

/// Halves the workgroups of an idle device, and doubles those of a device with low throughput.
///
/// ```
/// use vyre_driver::tuner::{DefaultPolicy, TunerFeedback};
/// let slow = TunerFeedback {
///     observed_workgroup_size_x: 64,
///     observed_throughput_per_us: 0.5,
///     ..TunerFeedback::default()
/// };
/// assert_eq!(DefaultPolicy::default().suggest_resize(&slow), Some(128));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultPolicy {
    /// The largest size to suggest.
    pub adapter_max_workgroup_size_x: u32,
    /// The smallest size to suggest.
    pub minimum_workgroup_size_x: u32,
    /// Throughput below which larger workgroups are suggested.
    pub saturation_threshold_per_us: f64,
    /// Idle time above which smaller workgroups are suggested.
    pub idle_shrink_us: u64,
}

impl Default for DefaultPolicy {
    // Chosen, not measured: a suggestion only starts a duel, which decides.
    fn default() -> DefaultPolicy {
        DefaultPolicy {
            adapter_max_workgroup_size_x: 1024,
            minimum_workgroup_size_x: 32,
            saturation_threshold_per_us: 1.0,
            idle_shrink_us: 100_000,
        }
    }
}

impl DefaultPolicy {
    /// The size to try next: half the observed size if the device idled too long, otherwise double
    /// if the throughput is too low. `None` if that size is out of bounds. An idle device never
    /// gets larger workgroups: it already has too few.
    pub fn suggest_resize(&self, feedback: &TunerFeedback) -> Option<u32> {
        let size = feedback.observed_workgroup_size_x;
        let suggested = if feedback.idle_us > self.idle_shrink_us {
            size / 2
        } else if feedback.observed_throughput_per_us < self.saturation_threshold_per_us {
            size.checked_mul(2)?
        } else {
            return None;
        };
        Some(suggested).filter(|&size| self.allows(size))
    }

    fn allows(&self, size: u32) -> bool {
        size > 0 && (self.minimum_workgroup_size_x..=self.adapter_max_workgroup_size_x).contains(&size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check((size, idle_us, throughput): (u32, u64, f64), expected: Option<u32>) {
        let feedback = TunerFeedback {
            observed_workgroup_size_x: size,
            idle_us,
            observed_throughput_per_us: throughput,
            ..TunerFeedback::default()
        };
        let suggested = DefaultPolicy::default().suggest_resize(&feedback);
        assert_eq!(suggested, expected, "size {size}, idle {idle_us}, throughput {throughput}");
    }

    #[test]
    fn suggestions_follow_idling_then_throughput() {
        check((256, 100_001, 5.0), Some(128));
        check((256, 100_001, 0.1), Some(128));
        check((256, 100_000, 5.0), None);
        check((256, 0, 0.9), Some(512));
        check((256, 0, 1.0), None);
        check((256, 0, f64::NAN), None);
        check((64, 200_000, 5.0), Some(32));
        check((32, 200_000, 5.0), None);
        check((32, 200_000, 0.5), None);
        check((512, 0, 0.5), Some(1024));
        check((1024, 0, 0.5), None);
    }

    #[test]
    fn no_suggestion_is_outside_the_limits() {
        check((0, 200_000, 0.0), None);
        check((8, 0, 0.0), None);
        check((4096, 200_000, 5.0), None);
        check((2048, 200_000, 5.0), Some(1024));
        check((u32::MAX, 200_000, 0.0), None);
        let upside_down = DefaultPolicy { minimum_workgroup_size_x: 2048, ..DefaultPolicy::default() };
        let feedback = TunerFeedback { observed_workgroup_size_x: 1024, ..TunerFeedback::default() };
        assert_eq!(upside_down.suggest_resize(&feedback), None);
    }
}
