//! `vyre devices`: lists the linked backends, those found, and those refused with the reason.

use crate::output::{Ending, print};
use crate::quantity;
use vyre::unstable::opening::meet_unknown_drivers;
use vyre_driver::certificates::{Certificate, CertificateTable};
use vyre_driver::pipeline::COMPILER_VERSION;
use vyre_driver::registry::{self, SelectionFacts};
use vyre_driver::storage::Storage;
use vyre_driver::{DeviceClass, DeviceProfile, FloatDepartures};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Backends are listed in the order of selection: real devices before software ones, then by capability \
(score), by how precisely they can be timed, and by rank. Once kernels have been measured, the \
measurements decide instead.

Examples:
  vyre devices
  vyre devices --limits
  vyre devices --json")]
pub(crate) struct Arguments {
    /// Also show each device's limits and features
    #[arg(long)]
    limits: bool,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Linked backend.
pub(crate) struct LinkedBackend {
    pub(crate) id: &'static str,
    pub(crate) state: DeviceState,
    /// Names of all its devices, if there are several; the first is the one described.
    names: Vec<String>,
    /// Result of its device on the conformance set, if it was probed before.
    pub(crate) certificate: Option<Certificate>,
}

/// State of a backend.
pub(crate) enum DeviceState {
    /// Usable; the first of these is selected.
    Usable { facts: SelectionFacts, profile: DeviceProfile },
    /// Used only where it is named, or not at all.
    Refused(String),
}

pub(crate) fn run(arguments: &Arguments) -> Ending {
    let devices = all();
    if arguments.json {
        print(
            &devices
                .iter()
                .enumerate()
                .map(|(at, device)| device.to_json(at))
                .collect::<serde_json::Value>()
                .to_string(),
        );
        return Ending::Done;
    }
    for (at, device) in devices.iter().enumerate() {
        print(&device.describe(at));
        if let (true, DeviceState::Usable { profile, .. }) = (arguments.limits, &device.state) {
            limits(profile).iter().for_each(|(name, value)| print(&format!("  {name:<24} {value}")));
        }
    }
    Ending::Done
}

/// All linked backends: usable ones in the order of selection, then the others.
pub(crate) fn all() -> Vec<LinkedBackend> {
    meet_unknown_drivers(&[]);
    let report = registry::selection_report();
    let certificates = Storage::of_user().certificates.and_then(|path| CertificateTable::load(&path).ok());
    let certificates = certificates.unwrap_or_default().certificates;
    let usable =
        report.ranked.iter().zip(registry::selection_profiles()).map(|(facts, profile)| LinkedBackend {
            id: facts.id,
            state: DeviceState::Usable { facts: facts.clone(), profile: *profile },
            names: names(facts.id),
            certificate: newest(&certificates, profile),
        });
    let refused = report.refused.iter().map(|refusal| LinkedBackend {
        id: &refusal.backend,
        state: DeviceState::Refused(refusal.reason.clone()),
        names: Vec::new(),
        certificate: None,
    });
    usable.chain(refused).collect()
}

/// Latest certificate of this device with this driver and this version of vyre.
fn newest(certificates: &[Certificate], profile: &DeviceProfile) -> Option<Certificate> {
    let of_device = certificates.iter().filter(|certificate| {
        let key = &certificate.key;
        (&*key.backend, &*key.device, &*key.driver, &*key.compiler_version)
            == (profile.backend, profile.device_name, profile.driver_version, COMPILER_VERSION)
    });
    of_device.max_by_key(|certificate| certificate.certified_at_ns).cloned()
}

fn names(id: &str) -> Vec<String> {
    registry::backend_devices(id).and_then(|devices| (devices.names)().ok()).unwrap_or_default()
}

impl LinkedBackend {
    fn describe(&self, at: usize) -> String {
        let (facts, profile) = match &self.state {
            DeviceState::Usable { facts, profile } => (facts, profile),
            DeviceState::Refused(reason) => return format!("{:<10} not selected: {reason}", self.id),
        };
        let verdict = if at == 0 { "selected" } else { "usable" };
        let mut text = format!(
            "{:<10} {verdict}: {} ({}), score {}, {}, {}, opened in {}",
            self.id,
            shown(profile.device_name),
            class(profile.device_class),
            facts.capability_score,
            strictness(profile),
            self.certification(),
            quantity::time(facts.acquisition_ns)
        );
        for (number, name) in self.names.iter().enumerate().skip(1) {
            text += &format!("\n{:<10} further device: {name}", format!("{}:{number}", self.id));
        }
        text
    }

    /// Whether its results are known to be correct.
    pub(crate) fn certification(&self) -> String {
        match &self.certificate {
            None => "not certified yet".into(),
            Some(Certificate { failure: Some(reason), .. }) => format!("failed certification: {reason}"),
            Some(_) => "certified".into(),
        }
    }

    pub(crate) fn to_json(&self, at: usize) -> serde_json::Value {
        match &self.state {
            DeviceState::Refused(reason) => {
                serde_json::json!({ "id": self.id, "state": "refused", "reason": reason })
            }
            DeviceState::Usable { facts, profile } => serde_json::json!({
                "id": self.id,
                "state": if at == 0 { "selected" } else { "usable" },
                "score": facts.capability_score,
                "software_adapter": facts.software_adapter,
                "timing_quality": facts.timing_quality_score,
                "precedence": facts.precedence,
                "opened_ns": facts.acquisition_ns,
                "strict": profile.strict_float,
                "certified": self.certificate.as_ref().map(|certificate| certificate.failure.is_none()),
                "further_devices": self.names.iter().skip(1).collect::<Vec<_>>(),
                "profile": profile,
            }),
        }
    }
}

fn shown(name: &str) -> &str {
    if name.is_empty() { "unnamed device" } else { name }
}

pub(crate) fn class(class: DeviceClass) -> &'static str {
    match class {
        DeviceClass::Unknown => "unknown kind",
        DeviceClass::Discrete => "discrete GPU",
        DeviceClass::Integrated => "integrated GPU",
        DeviceClass::Cpu => "processor",
        DeviceClass::Software => "processor behind a GPU interface",
    }
}

/// "strict" if results are compared bit by bit, else how they deviate.
pub(crate) fn strictness(profile: &DeviceProfile) -> String {
    if profile.strict_float {
        return "strict".into();
    }
    let FloatDepartures {
        flushes_subnormals,
        contracts,
        ignores_zero_sign,
        ignores_non_finite,
        approximate_division,
    } = profile.float_departures;
    let departures = [
        (flushes_subnormals, "flushes subnormals"),
        (contracts, "contracts"),
        (ignores_zero_sign, "ignores the sign of zero"),
        (ignores_non_finite, "ignores infinities and NaNs"),
        (approximate_division, "divides approximately"),
    ];
    let named: Vec<&str> = departures.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name).collect();
    if named.is_empty() { "not strict".into() } else { format!("not strict: {}", named.join(", ")) }
}

fn limits(profile: &DeviceProfile) -> Vec<(&'static str, String)> {
    let number = |value: u64| if value == 0 { "unknown".to_string() } else { value.to_string() };
    let size = |value: u64| if value == 0 { "unknown".to_string() } else { quantity::bytes(value) };
    let yes = |holds: bool| if holds { "yes" } else { "no" }.to_string();
    vec![
        ("driver", shown(profile.driver_version).to_string()),
        ("compute units", number(profile.compute_units.into())),
        ("memory bandwidth, GB/s", number(profile.mem_bw_gbps.into())),
        ("workgroup size", format!("{:?}", profile.max_workgroup_size)),
        ("invocations per group", number(profile.max_invocations_per_workgroup.into())),
        ("workgroups per axis", number(profile.max_workgroups_per_dimension.into())),
        ("workgroup memory", size(profile.max_shared_memory_bytes.into())),
        ("largest buffer", size(profile.max_storage_buffer_binding_size)),
        ("subgroup size", number(profile.subgroup_size.into())),
        ("subgroup ops", yes(profile.supports_subgroup_ops)),
        ("f16, bf16 elements", format!("{}, {}", yes(profile.supports_f16), yes(profile.supports_bf16))),
        ("f64, 64-bit integers", format!("{}, {}", yes(profile.supports_f64), yes(profile.supports_int64))),
        ("64-bit atomics", yes(profile.supports_atomic64)),
        ("1- and 2-byte elements", yes(profile.supports_narrow_storage)),
        ("device timestamps", yes(profile.supports_device_timestamps)),
    ]
}
