//! Whether a call probes a backend other than the incumbent, and how a probe is judged.
//!
//! Both functions are pure: [`decide`] takes a [`Rival`], everything known about a backend that
//! could be probed, and returns the first of the [`RULES`] that applies; [`judge`] takes a
//! completed [`Probe`] and returns a [`ProbeResult`], which `ProgramRoutes::apply` carries out.
//!
//! **Bursts**: an idle backend is slow at first, because its threads sleep and the caches hold
//! another backend's data, so an isolated call says little about its time if it got all calls. A
//! probe that took longer than expected is therefore followed by another at once, and by more while
//! they get faster; only the last counts as the backend's time. A probe that beat the incumbent is
//! followed by more until it is certain which of the two is faster: those cost nothing.

use super::statistics::{Pace, SAFETY};

// The simulated machines of `filetests/routing` set these constants. The comment on each says what
// other values do there: the bounds that break, or the mean overhead over all machines, which is
// 0.58%.

/// Share of a program's time that its probes can cost: the promise that the machines check.
pub(super) const PROBE_SHARE: f64 = 0.01;
/// Worst-case cost of a single probe, as a share of the program's time. 0.05: the overhead exceeds
/// 3% in `crossover` and `changing_sizes`, and 12 of 24 long calls miss the better backend.
const RISK_SHARE: f64 = 0.25;
/// Relative speedup that makes a switch worthwhile. 0.002 and 0.05: the overhead rises by 0.01%.
pub(super) const WORTH_SWITCHING: f64 = 0.01;
/// Number of standard errors by which a backend must be faster, or slower, for the difference to be
/// certain. Faster by 4: a backend that slows down is left too late (`going_bad`). Slower by 4: the
/// overhead rises by 0.04%.
const SURELY_FASTER: f64 = 2.5;
const SURELY_SLOWER: f64 = 2.0;
/// Calls after which an undecided backend counts as faster if it is ahead by one standard error,
/// otherwise as slower. 8: a backend that slows down is left too late (`going_bad`).
const CALLS_OF_A_TIE: u64 = 20;
/// Calls of a backend after which probe time beyond three deviations counts as a hiccup, which any
/// backend can have. 0: more than 3% overhead (`changing_sizes`). 10: not used again after a
/// disturbance (`storm`).
const CALLS_BEFORE_HICCUPS: u64 = 2;
/// A probe that took this many times the expected time may have been warming up. 1: backends that
/// are as slow as expected are probed twice, and the overhead rises by 0.02%.
const SURPRISING: f64 = 1.2;
/// A backend that takes less than this multiple of the incumbent's time may be the faster one when
/// it is not idle. 1.5: not used again after a disturbance (`storm`).
const NEAR: f64 = 4.0;
/// A later probe may also have been warming up if it took less than this fraction of the one
/// before. 0.5 and 0.97: a backend that slows down is left too late (`going_bad`).
const WARMING_UP: f64 = 0.8;
/// Maximum number of warm-up calls in a burst, and of calls in all. No warm-up calls: a backend
/// that is slow after idling is never chosen (`slow_after_idling`); 10 changes nothing. 2 calls in
/// all: not used again after a disturbance (`storm`).
const WARMING_CALLS: u64 = 3;
const BURST_CALLS: u64 = 8;
/// Rest of a backend, in calls, after the first time it was not faster, and the longest rest; each
/// rest is twice as long as the last. Shortest 64: more than 3% overhead (`two_backends`). Longest
/// 128: not used again after a disturbance (`storm`).
pub(super) const SHORTEST_REST: u64 = 16;
const LONGEST_REST: u64 = 1024;
/// Rest, in calls, after which a backend near the incumbent is probed twice in a row. Never: not
/// used again after a disturbance (`storm`). 64: the overhead rises by 0.02%.
const LONG_REST: u64 = 256;
/// Rest, in calls, after which earlier statistics are stale. 8: a backend that slows down is left
/// too late (`going_bad`). Never: not used again after a disturbance (`storm`, `used_again`).
const STALE_REST: u64 = 64;

/// A backend that could be probed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rival {
    /// Whether its last probe left a burst open.
    pub(super) in_burst: bool,
    /// The incumbent's pace; `None` if it was never timed.
    pub(super) incumbent: Option<Pace>,
    /// Its expected time; infinite if nothing is known.
    pub(super) expected_ns: f64,
    /// Whether it would complete within the caller's time limit, even in a slow call.
    pub(super) in_time: bool,
    /// Its worst case, and its likely time if the cause of a slowdown is over.
    pub(super) at_worst_ns: f64,
    pub(super) likely_ns: f64,
    /// Calls left of its rest.
    pub(super) rests: u64,
    /// Length of its last rest, in calls.
    pub(super) rested: u64,
    /// Time of all calls of the program.
    pub(super) total_ns: f64,
    /// Cost so far of all probes, and of its probes.
    pub(super) spent_ns: f64,
    pub(super) own_ns: f64,
    /// Number of backends that share the budget.
    pub(super) rivals: f64,
}

impl Rival {
    /// The time to beat. A single call can be slow by chance, so only half its time counts.
    fn target_ns(&self) -> f64 {
        self.incumbent.map_or(0.0, |pace| if pace.recent < 2 { pace.time_ns() / 2.0 } else { pace.time_ns() })
    }

    /// Expected cost of a probe.
    pub(super) fn price_ns(&self) -> f64 {
        self.expected_ns - self.target_ns()
    }

    /// Limit on the total cost of this backend's probes, including this one. Each backend has a
    /// separate share of the budget, so that probes made expensive by a disturbed machine do not
    /// shut out the other backends. The slower a backend is known to be, the lower its limit; but a
    /// time that has not been confirmed repeatedly may be wrong.
    fn limit_ns(&self) -> f64 {
        let least = SHORTEST_REST as f64 / self.rested.max(3 * SHORTEST_REST) as f64;
        PROBE_SHARE * self.total_ns / self.rivals * (self.target_ns() / self.expected_ns).clamp(least, 1.0)
    }
}

/// One rule of probing.
#[derive(Debug)]
pub(super) struct ProbeRule {
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
    /// Whether a backend that it applies to is probed.
    pub(super) probes: bool,
    applies: fn(&Rival) -> bool,
}

/// The rules; the first that applies decides.
static RULES: [ProbeRule; 9] = [
    ProbeRule {
        name: "deadline",
        reason: "it might not complete within the caller's time limit",
        probes: false,
        applies: |rival| !rival.in_time,
    },
    ProbeRule {
        name: "burst",
        reason: "its last probe did not establish how long it takes",
        probes: true,
        applies: |rival| rival.in_burst,
    },
    ProbeRule {
        name: "untimed",
        reason: "the backend in use has not been timed at this size",
        probes: false,
        applies: |rival| rival.incumbent.is_none_or(|pace| pace.recent == 0),
    },
    ProbeRule {
        name: "unknown",
        reason: "there is no estimate of how long it would take",
        probes: false,
        applies: |rival| !rival.expected_ns.is_finite(),
    },
    ProbeRule {
        name: "risky",
        reason: "at worst, one call would cost more than a quarter of all calls so far",
        probes: false,
        applies: |rival| rival.at_worst_ns - rival.target_ns() > RISK_SHARE * rival.total_ns,
    },
    ProbeRule {
        name: "faster",
        reason: "it is expected to be faster",
        probes: true,
        applies: |rival| rival.price_ns() < -WORTH_SWITCHING * rival.target_ns(),
    },
    ProbeRule {
        name: "resting",
        reason: "it was not faster when it was last probed",
        probes: false,
        applies: |rival| rival.rests > 0,
    },
    ProbeRule {
        name: "affordable",
        reason: "the budget has room for it",
        probes: true,
        applies: |rival| {
            let price_ns = rival.likely_ns - rival.target_ns();
            rival.own_ns + price_ns <= rival.limit_ns()
                && rival.spent_ns + price_ns <= PROBE_SHARE * rival.total_ns
        },
    },
    ProbeRule { name: "costly", reason: "the budget has no room for it", probes: false, applies: |_| true },
];

/// The rule that decides whether the backend is probed now.
pub(super) fn decide(rival: &Rival) -> &'static ProbeRule {
    let [.., last] = &RULES;
    RULES.iter().find(|rule| (rule.applies)(rival)).unwrap_or(last)
}

/// Consecutive probes of one backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Burst {
    pub(super) calls: u64,
    /// Time of the last one.
    pub(super) last_ns: u64,
}

/// A completed probe.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) elapsed_ns: u64,
    /// The probes before it in the same burst.
    pub(super) burst: Burst,
    /// The expected time.
    pub(super) expected_ns: f64,
    /// The backend's pace before the probe.
    pub(super) before: Option<Pace>,
    /// The incumbent's pace.
    pub(super) incumbent: Pace,
    /// Length of the backend's rest before the burst, in calls.
    pub(super) rested: u64,
    /// Time of the first probe of this burst, or of the previous burst if this is the first: a slow
    /// time that repeats is not a hiccup.
    pub(super) first_ns: u64,
}

/// The consequence of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProbeResult {
    /// Its cost; negative if it was faster.
    pub(super) price_ns: i64,
    pub(super) outcome: ProbeOutcome,
}

/// What a probe shows about its backend.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ProbeOutcome {
    /// Nothing yet: the next call may be faster.
    WarmingUp(Burst),
    /// It was faster; more calls are needed to be certain.
    Ahead(Pace, Burst),
    /// It is faster, and becomes the incumbent.
    TakesOver(Pace),
    /// It is not faster, and rests for this many calls.
    Rests(Pace, u64),
}

/// Judges a probe.
pub(super) fn judge(probe: &Probe) -> ProbeResult {
    let Probe { elapsed_ns, burst, before, incumbent, rested, .. } = *probe;
    let burst = Burst { calls: burst.calls + 1, last_ns: elapsed_ns };
    let ahead = (elapsed_ns as f64) < incumbent.time_ns();
    let outcome = if !ahead && burst.calls <= WARMING_CALLS && probe.may_be_cold() {
        ProbeOutcome::WarmingUp(burst)
    } else {
        let known = before.map(|pace| if rested >= STALE_REST { pace.stale() } else { pace });
        let pace = known.unwrap_or(Pace::assumed(elapsed_ns)).after(elapsed_ns);
        let error = pace.error().hypot(incumbent.error());
        let faster_by = incumbent.level - pace.level;
        let tied = pace.recent < CALLS_OF_A_TIE;
        let probably = !tied && faster_by > error.max(WORTH_SWITCHING);
        if probably || faster_by > SURELY_FASTER * error {
            ProbeOutcome::TakesOver(pace)
        } else if ahead && burst.calls < BURST_CALLS {
            ProbeOutcome::Ahead(pace, burst)
        } else if tied && faster_by > -SURELY_SLOWER * error {
            // If the incumbent has few calls, a few more may settle it.
            ProbeOutcome::Rests(pace, SHORTEST_REST.min(incumbent.recent))
        } else {
            ProbeOutcome::Rests(pace, (2 * rested).clamp(SHORTEST_REST, LONGEST_REST))
        }
    };
    ProbeResult { price_ns: probe.price_ns(), outcome }
}

impl Probe {
    fn price_ns(&self) -> i64 {
        let known = self.before.filter(|pace| pace.recent >= CALLS_BEFORE_HICCUPS);
        let most_ns = known.map_or(SAFETY * self.expected_ns, |pace| pace.at_most_ns());
        ((self.elapsed_ns as f64).min(most_ns.max(self.first_ns as f64)) - self.incumbent.time_ns()) as i64
    }

    /// Whether the call may have been slow only because the backend was idle or had a hiccup, so
    /// that the next one is worth its price.
    fn may_be_cold(&self) -> bool {
        let elapsed_ns = self.elapsed_ns as f64;
        let falls = self.burst.calls == 0 || elapsed_ns < WARMING_UP * self.burst.last_ns as f64;
        falls && (self.is_surprising() || self.is_overdue())
    }

    /// Whether the call took longer than expected: by more, the slower the backend was expected to
    /// be.
    fn is_surprising(&self) -> bool {
        let slower = (self.expected_ns / self.incumbent.time_ns()).max(1.0);
        self.elapsed_ns as f64 > SURPRISING * slower * self.expected_ns
    }

    /// Whether the backend is near the incumbent, and only single calls have shown its time for
    /// long. The expected time may be that of an idle backend, so a slow call does not count as
    /// surprising.
    fn is_overdue(&self) -> bool {
        self.rested >= LONG_REST && (self.elapsed_ns as f64) < NEAR * self.incumbent.time_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pace(times: impl IntoIterator<Item = u64>) -> Pace {
        let mut times = times.into_iter();
        let first = times.next().expect("a time");
        times.fold(Pace::assumed(first).after(first), Pace::after)
    }

    /// A rival of an incumbent that takes 1,000 ns, after 1,000 calls.
    fn rival(expected_ns: f64) -> Rival {
        Rival {
            in_burst: false,
            in_time: true,
            incumbent: Some(pace([1_000; 50])),
            expected_ns,
            at_worst_ns: expected_ns,
            likely_ns: expected_ns,
            rests: 0,
            rested: 0,
            total_ns: 1e6,
            spent_ns: 0.0,
            own_ns: 0.0,
            rivals: 1.0,
        }
    }

    #[test]
    fn the_first_rule_that_applies_decides() {
        let unsure = Some(pace([1_000]));
        for (expected, rival) in [
            ("deadline", Rival { in_burst: true, in_time: false, ..rival(1.0) }),
            ("burst", Rival { in_burst: true, incumbent: None, ..rival(f64::INFINITY) }),
            ("untimed", Rival { incumbent: None, ..rival(f64::INFINITY) }),
            ("untimed", Rival { incumbent: Some(Pace::assumed(1_000)), ..rival(1.0) }),
            ("unknown", rival(f64::INFINITY)),
            ("risky", Rival { at_worst_ns: 300_000.0, ..rival(1.0) }),
            ("faster", Rival { at_worst_ns: 200_000.0, ..rival(1.0) }),
            ("faster", Rival { spent_ns: 1e9, rests: 9, ..rival(980.0) }),
            ("faster", Rival { incumbent: unsure, ..rival(400.0) }),
            ("affordable", Rival { incumbent: unsure, ..rival(800.0) }),
            ("affordable", rival(995.0)),
            ("resting", Rival { rests: 9, ..rival(995.0) }),
            ("affordable", rival(3_000.0)),
            ("affordable", Rival { spent_ns: 2_000.0, ..rival(3_000.0) }),
            ("costly", Rival { own_ns: 2_000.0, ..rival(3_000.0) }),
            ("costly", Rival { rivals: 2.0, ..rival(3_000.0) }),
            ("costly", Rival { spent_ns: 9_500.0, ..rival(2_000.0) }),
            ("affordable", rival(4_000.0)),
            ("costly", Rival { rested: 1_024, ..rival(4_000.0) }),
            ("costly", rival(11_000.0)),
        ] {
            assert_eq!(decide(&rival).name, expected, "{rival:?}");
        }
    }

    #[test]
    fn rules_have_names_of_their_own() {
        let names: std::collections::BTreeSet<&str> = RULES.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), RULES.len());
    }

    /// A probe against an incumbent that takes 1,000 ns.
    fn probe(elapsed_ns: u64, calls: u64) -> Probe {
        let (expected_ns, before) = (1_000.0, None);
        let burst = Burst { calls, last_ns: 8_000 };
        Probe { elapsed_ns, burst, expected_ns, before, incumbent: pace([1_000; 50]), rested: 0, first_ns: 0 }
    }

    #[test]
    fn a_probe_is_judged_by_what_it_took_and_what_was_known() {
        let slow = |rested| Probe {
            before: Some(pace([3_000; 30])),
            expected_ns: 3_000.0,
            rested,
            ..probe(3_000, 0)
        };
        let near =
            Probe { before: Some(pace([1_030; 10])), expected_ns: 1_030.0, rested: 64, ..probe(1_030, 0) };
        let tied = Probe { before: Some(pace([970; 19])), ..probe(970, 0) };
        for (expected, probe) in [
            ("warming up", probe(8_000, 0)),
            ("warming up", probe(4_000, 2)),
            ("rests 16", probe(7_500, 1)),
            ("rests 16", probe(4_000, 3)),
            ("rests 16", probe(1_100, 0)),
            ("takes over", probe(400, 0)),
            ("ahead", probe(990, 0)),
            ("rests 16", probe(990, 7)),
            ("takes over", tied),
            ("rests 16", near),
            ("rests 16", slow(0)),
            ("rests 128", slow(64)),
            ("warming up", slow(1024)),
            ("rests 16", Probe { elapsed_ns: 10_000, ..slow(0) }),
            ("warming up", slow(256)),
            ("rests 512", Probe { burst: Burst { calls: 1, last_ns: 3_100 }, ..slow(256) }),
            ("rests 512", Probe { elapsed_ns: 4_100, ..slow(256) }),
            ("warming up", Probe { elapsed_ns: 11_000, ..slow(0) }),
        ] {
            let outcome = match judge(&probe).outcome {
                ProbeOutcome::WarmingUp(_) => "warming up".to_owned(),
                ProbeOutcome::Ahead(..) => "ahead".to_owned(),
                ProbeOutcome::TakesOver(_) => "takes over".to_owned(),
                ProbeOutcome::Rests(_, calls) => format!("rests {calls}"),
            };
            assert_eq!(outcome, expected, "{probe:?}");
        }
    }

    #[test]
    fn a_probe_costs_what_it_took_longer_but_for_hiccups() {
        let price = |probe: &Probe| judge(probe).price_ns;
        assert!((1_990..=2_010).contains(&price(&probe(3_000, 0))));
        assert!((-510..=-490).contains(&price(&probe(500, 0))));
        let hiccup = Probe { before: Some(pace([3_000; 30])), ..probe(1_000_000, 0) };
        assert!(price(&hiccup) < 3_000, "{}", price(&hiccup));
        let first = Probe { before: None, ..hiccup };
        assert!(price(&first) <= 3_000, "four times what was expected: {}", price(&first));
        let again = Probe { first_ns: 1_000_000, ..hiccup };
        assert!(price(&again) > 990_000, "{}", price(&again));
    }
}
