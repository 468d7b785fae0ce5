//! The conformance set: small programs that together use every op, type and kind of statement.
//!
//! A backend is routed to only after it gave the interpreter's results for every program of the set
//! that it supports. A device that is not strict about floats is held to the bounds declared by its
//! profile and the op table.

use crate::inputs::example_bytes;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use vyre_driver::certificates::{Certificate, CertificateKey};
use vyre_driver::judge::{Judge, outputs_of};
use vyre_driver::tables::now_ns;
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend, contain, pipeline, registry};
use vyre_foundation::ir::{BufferDecl, Program};
use vyre_foundation::text;
use vyre_reference::CpuRef;

macro_rules! programs {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!($name, ".vyre")))),*] };
}

const TEXTS: &[(&str, &str)] = programs! {
    "u32" "i32" "u64" "i64" "f32" "f64" "roots_f32" "roots_f64" "fma_f32" "fma_f64" "transcendental" "transcendental_more"
    "transcendental_f64" "composites" "convert_32" "convert_64"
    "bool" "narrow" "f16" "bf16" "control" "long_loop" "out_of_range" "grid" "workgroup" "atomics" "atomics_64" "subgroups"
    "ballot" "shuffles"
};

/// Elements of buffers without a fixed length: not a multiple of any vector or workgroup, and
/// little for the interpreter, which runs each program once per certification.
const ELEMENTS: usize = 250;
/// Time limit for a backend on one program, a sixth of the minute that the helper has for the whole
/// set.
const LIMIT: Duration = Duration::from_secs(10);

/// A program of the set.
struct Case {
    name: &'static str,
    program: Program,
    inputs: Vec<Vec<u8>>,
}

static CASES: LazyLock<Vec<Case>> = LazyLock::new(|| {
    let case = |&(name, source): &(&'static str, &str)| match text::parse(source) {
        Ok(program) => Case { name, inputs: inputs_of(&program), program },
        Err(faults) => unreachable!("the conformance set is part of this crate: {faults}"),
    };
    TEXTS.iter().map(case).collect()
});

/// The programs of the set.
pub(crate) fn programs() -> impl Iterator<Item = &'static Program> {
    CASES.iter().map(|case| &case.program)
}

/// Inputs for a program: numbers of all kinds.
pub(crate) fn inputs_of(program: &Program) -> Vec<Vec<u8>> {
    let mut given: Vec<&BufferDecl> =
        program.buffers().iter().filter(|decl| decl.access.is_input()).collect();
    given.sort_by_key(|decl| decl.binding);
    let bytes = |decl: &&BufferDecl| {
        let count = if decl.count > 0 { decl.count as usize } else { ELEMENTS };
        example_bytes(decl.element, count, &decl.name)
    };
    given.iter().map(bytes).collect()
}

/// A digest of the set: a certificate for another set says nothing about this one.
pub(crate) fn set_digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new();
        for (name, source) in TEXTS {
            hasher.update(name.as_bytes()).update(&[0]).update(source.as_bytes()).update(&[0]);
        }
        hasher.finalize().to_hex()[..16].to_owned()
    });
    &DIGEST
}

/// Runs the set on a backend, up to the first program that fails.
pub(crate) fn certify(driver: &Arc<dyn VyreBackend>, profile: &DeviceProfile, how: &str) -> Certificate {
    let mut certificate = Certificate {
        key: CertificateKey::new(profile, set_digest()),
        how: how.to_owned(),
        stamp: registry::driver_stamp(profile.backend),
        certified_at_ns: now_ns(),
        ..Certificate::default()
    };
    for case in CASES.iter() {
        match case.judge(driver, profile) {
            Ok(true) => certificate.passed.push(case.name.into()),
            Ok(false) => certificate.unsupported.push(case.name.into()),
            Err(reason) => {
                certificate.failure =
                    Some(format!("program `{}` of the conformance set: {reason}", case.name));
                return certificate;
            }
        }
    }
    if certificate.passed.is_empty() {
        certificate.failure = Some("it supports none of the conformance set".into());
    }
    certificate
}

impl Case {
    /// Whether the backend supports the program; an error if it does but its results are wrong.
    fn judge(&self, driver: &Arc<dyn VyreBackend>, profile: &DeviceProfile) -> Result<bool, String> {
        let inputs: Vec<&[u8]> = self.inputs.iter().map(Vec::as_slice).collect();
        let found = contain(|| {
            let compiled = pipeline::compile(driver.clone(), &self.program, &DispatchConfig::default())?;
            let config = DispatchConfig { timeout: Some(LIMIT), ..DispatchConfig::default() };
            compiled.dispatch_borrowed(&inputs, &config)
        })?;
        let found = match found {
            Ok(found) => found,
            Err(BackendError::UnsupportedFeature { .. }) => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        let subgroup_size = (profile.subgroup_size > 0).then_some(profile.subgroup_size);
        let config = DispatchConfig { subgroup_size, ..DispatchConfig::default() };
        let expected =
            CpuRef.dispatch_borrowed(&self.program, &inputs, &config).map_err(|e| e.to_string())?;
        let judge = Judge::new(profile, [&self.program], &DispatchConfig::default());
        let difference = judge.difference(&outputs_of(&self.program), &expected, &found);
        difference.map_or(Ok(true), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use vyre_foundation::ops::Op;
    use vyre_foundation::text::print;

    #[test]
    fn the_set_uses_every_op() {
        let used: BTreeSet<_> =
            CASES.iter().flat_map(|case| case.program.validate().expect("valid").needs.ops.clone()).collect();
        let missing: Vec<_> = Op::ALL.iter().map(|op| op.id()).filter(|id| !used.contains(id)).collect();
        assert!(missing.is_empty(), "not in the conformance set: {missing:?}");
        assert!(CASES.iter().all(|case| print(&case.program).contains("region")));
    }

    #[test]
    fn the_interpreter_conforms_to_itself() {
        let driver: Arc<dyn VyreBackend> = Arc::new(CpuRef);
        let certificate = certify(&driver, &CpuRef.device_profile(), "test");
        assert_eq!((certificate.failure, certificate.passed.len()), (None, CASES.len()));
    }

    #[cfg(feature = "cpu")]
    #[test]
    fn the_embedded_backend_conforms() {
        let driver: Arc<dyn VyreBackend> = registry::acquire("cpu").expect("opens").into();
        let certificate = certify(&driver, &driver.device_profile(), "test");
        assert_eq!(certificate.failure, None);
    }

    #[test]
    fn faults_are_found() {
        use vyre_conform::backends::{FaultyBackend, Misbehaviour};
        for fault in [
            Misbehaviour::Fails,
            Misbehaviour::Panics,
            Misbehaviour::Lies,
            Misbehaviour::FailsToCompile,
            Misbehaviour::WrongOutputCount,
        ] {
            let driver: Arc<dyn VyreBackend> = Arc::new(FaultyBackend::new(fault));
            let certificate = certify(&driver, &driver.device_profile(), "test");
            assert!(certificate.failure.is_some(), "{fault:?}");
        }
    }
}
