//! Configuration of dispatches. Every field is optional, so that a call's settings can override the
//! pipeline's.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vyre_foundation::launch::Overrides;
use vyre_foundation::optimize;

/// Whether another backend may take over when the chosen one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fallback {
    /// No: the caller gets the error. The default if a backend was named.
    Forbid,
    /// Yes, with a warning. The default if the router chose the backend.
    Warn,
    /// Yes, silently; the result still reports which backend ran.
    Allow,
}

/// The optimizer's effort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Schedule {
    /// None: the kernel is compiled as written.
    Off,
    /// Low: for kernels that run occasionally.
    Cheap,
    /// Full: for kernels that run often.
    Expensive,
}

impl Schedule {
    /// The optimizer's passes for this schedule.
    pub fn passes(self) -> optimize::Schedule {
        match self {
            Schedule::Off => optimize::Schedule::none(),
            Schedule::Cheap => optimize::Schedule::quick(),
            Schedule::Expensive => optimize::Schedule::full(),
        }
    }
}

macro_rules! dispatch_config {
    ($($(#[$doc:meta])* $field:ident: $ty:ty,)*) => {
        /// The configuration of a dispatch. An unset field means the value that the pipeline was
        /// compiled with, otherwise the backend's default.
        ///
        /// ```
        /// use vyre_driver::DispatchConfig;
        /// let compiled = DispatchConfig {
        ///     ulp_budget: Some(2),
        ///     label: Some("saxpy".into()),
        ///     ..Default::default()
        /// };
        /// let call = DispatchConfig { ulp_budget: Some(0), ..Default::default() };
        /// let effective = call.over(&compiled);
        /// assert_eq!(
        ///     (effective.ulp_budget, effective.label.as_deref()),
        ///     (Some(0), Some("saxpy"))
        /// );
        /// ```
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct DispatchConfig {
            $($(#[$doc])* #[serde(skip_serializing_if = "Option::is_none")] pub $field: Option<$ty>,)*
        }

        impl DispatchConfig {
            /// Merges this configuration over `base`: a field that is set here wins, an unset one
            /// is taken from `base`.
            #[must_use]
            pub fn over(&self, base: &DispatchConfig) -> DispatchConfig {
                DispatchConfig { $($field: self.$field.clone().or_else(|| base.$field.clone()),)* }
            }

            /// Whether no field is set.
            pub fn is_unset(&self) -> bool {
                true $(&& self.$field.is_none())*
            }
        }
    };
}

dispatch_config! {
    /// A name for this kind of use, which has separate measurements.
    profile: String,
    /// Permitted error of a float result in units in the last place; strict if unset.
    ulp_budget: u8,
    /// Time limit of the dispatch.
    timeout: Duration,
    /// A name for traces.
    label: String,
    /// Maximum total size of the outputs, in bytes.
    max_output_bytes: usize,
    /// Invocations per workgroup, instead of the program's workgroup size.
    workgroup_override: [u32; 3],
    /// Number of workgroups of the effective size, instead of covering the domain.
    grid_override: [u32; 3],
    /// Invocations on each axis, instead of the program's domain; a grid override takes precedence.
    domain_override: [u32; 3],
    /// Whether another backend may take over.
    fallback: Fallback,
    /// The optimizer's effort.
    schedule: Schedule,
    /// Elements of the domain per invocation of a shape-free kernel.
    elements_per_invocation: u32,
    /// Lanes per subgroup, if the device offers a choice.
    subgroup_size: u32,
    /// Whether the device's transcendental functions may replace vyre's.
    native_math: bool,
    /// Whether the program's asserts are checked; true if unset.
    asserts: bool,
    /// Ends a dispatch that has a timeout early, if the backend can be interrupted. Not part of
    /// manifests.
    #[serde(skip)]
    cancellation: Cancellation,
}

/// A flag that one thread sets to cancel what another waits for; clones share it. Equal only to its
/// clones.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Sets the flag.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the flag is set.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for code that polls it.
    pub fn flag(&self) -> &AtomicBool {
        &self.0
    }
}

impl PartialEq for Cancellation {
    fn eq(&self, other: &Cancellation) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Cancellation {}

impl DispatchConfig {
    /// Its overrides of the shape of a dispatch.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            workgroup: self.workgroup_override,
            grid: self.grid_override,
            domain: self.domain_override,
        }
    }

    /// Whether it sets the size or the division of a dispatch.
    pub fn is_shaped(&self) -> bool {
        self.overrides() != Overrides::default()
            || self.elements_per_invocation.is_some()
            || self.subgroup_size.is_some()
    }

    /// Whether the caller supplies the domain, so that it is unknown when code is compiled.
    pub fn gives_domain(&self) -> bool {
        self.domain_override.is_some() && self.grid_override.is_none()
    }

    /// The configuration with the remaining time after `elapsed`; less than a millisecond is not
    /// subtracted.
    pub fn after(&self, elapsed: Duration) -> Cow<'_, DispatchConfig> {
        match self.timeout {
            Some(limit) if elapsed >= Duration::from_millis(1) => {
                let timeout = Some(limit.saturating_sub(elapsed));
                Cow::Owned(DispatchConfig { timeout, ..self.clone() })
            }
            Some(_) | None => Cow::Borrowed(self),
        }
    }

    /// Like [`over`](Self::over), without cloning if one of the two is unset.
    pub fn merged<'a>(&'a self, base: &'a DispatchConfig) -> Cow<'a, DispatchConfig> {
        if self.is_unset() {
            Cow::Borrowed(base)
        } else if base.is_unset() {
            Cow::Borrowed(self)
        } else {
            Cow::Owned(self.over(base))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static FLAG: std::sync::LazyLock<Cancellation> = std::sync::LazyLock::new(Cancellation::default);

    fn full() -> DispatchConfig {
        DispatchConfig {
            profile: Some("p".into()),
            ulp_budget: Some(1),
            timeout: Some(Duration::from_millis(5)),
            label: Some("l".into()),
            max_output_bytes: Some(9),
            workgroup_override: Some([8, 1, 1]),
            grid_override: Some([2, 1, 1]),
            domain_override: Some([5, 3, 1]),
            fallback: Some(Fallback::Warn),
            schedule: Some(Schedule::Cheap),
            elements_per_invocation: Some(4),
            subgroup_size: Some(32),
            native_math: Some(true),
            asserts: Some(false),
            cancellation: Some(FLAG.clone()),
        }
    }

    #[test]
    fn merging_is_by_field() {
        let unset = DispatchConfig::default();
        assert_eq!(unset.over(&full()), full());
        assert_eq!(full().over(&unset), full());
        let call = DispatchConfig { ulp_budget: Some(0), native_math: Some(false), ..Default::default() };
        let expected = DispatchConfig { ulp_budget: Some(0), native_math: Some(false), ..full() };
        assert_eq!(call.over(&full()), expected);
        assert_eq!(*call.merged(&full()), expected);
    }

    #[test]
    fn merging_copies_only_when_both_say_something() {
        let (unset, full) = (DispatchConfig::default(), full());
        assert!(unset.is_unset() && !full.is_unset());
        assert!(matches!(unset.merged(&full), Cow::Borrowed(config) if *config == full));
        assert!(matches!(full.merged(&unset), Cow::Borrowed(config) if *config == full));
    }

    #[test]
    fn survives_json() {
        let json = serde_json::to_string(&DispatchConfig { cancellation: None, ..full() }).unwrap();
        assert_eq!(
            serde_json::from_str::<DispatchConfig>(&json).unwrap(),
            DispatchConfig { cancellation: None, ..full() }
        );
        assert_eq!(serde_json::from_str::<DispatchConfig>("{}").unwrap(), DispatchConfig::default());
    }
}
