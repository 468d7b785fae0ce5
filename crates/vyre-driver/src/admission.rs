//! Admission: the checks that a program must pass before a backend sees it.
//!
//! In this order: the top level consists of regions; the whole program validates; the backend
//! supports every op in it; the device has every ability it needs; workgroup, subgroup, workgroup
//! memory, buffers and grid are within the device's limits. The first two are faults of the program
//! (`InvalidProgram`). The others mean that this backend cannot run it but another one might
//! (`UnsupportedFeature`); the error names the linked backends that can, if that is known without
//! opening them.
//!
//! Limits that a profile does not know are not enforced; see [`DeviceProfile`].

use crate::containment::contain;
use crate::registry::{backend_is_oracle, known_profiles, registered_backends};
use crate::{BackendError, DeviceClass, DeviceProfile, DispatchConfig, VyreBackend};
use std::collections::HashSet;
use vyre_foundation::diagnostics::{Code, Diagnostic, Diagnostics};
use vyre_foundation::ir::{Access, Program};
use vyre_foundation::kernel::{Kernel, KernelBody, KernelDomain, Needs};
use vyre_foundation::ops::OpId;

/// Checks the program for the backend and returns its kernel.
pub(crate) fn admit(
    backend: &dyn VyreBackend,
    profile: &DeviceProfile,
    program: &Program,
    config: &DispatchConfig,
) -> Result<Kernel, BackendError> {
    check_regions(program)?;
    let kernel = program.validate()?;
    check_device((backend.id(), backend.supported_ops()), profile, &kernel, config)?;
    Ok(kernel)
}

/// Checks that the device can run the kernel; `ops` are the ops that the backend of this id
/// supports.
pub(crate) fn check_device(
    (backend, ops): (&str, &HashSet<OpId>),
    profile: &DeviceProfile,
    kernel: &KernelBody,
    config: &DispatchConfig,
) -> Result<(), BackendError> {
    check_ops(backend, ops, kernel)?;
    check_abilities(profile, &kernel.needs)?;
    check_memory(profile, kernel)?;
    check_shape(profile, kernel, config)
}

fn check_regions(program: &Program) -> Result<(), BackendError> {
    if program.is_region_wrapped() {
        return Ok(());
    }
    let found =
        if program.entry().is_empty() { "it is empty" } else { "it has a statement outside a region" };
    Err(fault(
        Code::NotRegions,
        format!("a backend takes a top-level Region-wrapped Program, and this is not one: {found}"),
        "build it with `Program::wrapped`, or put the body in a region",
    ))
}

fn check_ops(backend: &str, supported: &HashSet<OpId>, kernel: &KernelBody) -> Result<(), BackendError> {
    let missing: Vec<&OpId> = kernel.needs.ops.iter().filter(|op| !supported.contains(*op)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let has_all = |supported_ops: fn() -> &'static HashSet<OpId>| {
        contain(supported_ops).is_ok_and(|ops| missing.iter().all(|op| ops.contains(*op)))
    };
    let others: Vec<&str> =
        registered_backends().iter().filter(|r| has_all(r.supported_ops)).map(|r| r.id).collect();
    let names: Vec<&str> = missing.iter().map(|op| op.as_str()).collect();
    Err(unsupported(backend, names.join(", "), &others))
}

/// An ability that a kernel can need and a device can lack.
struct Ability {
    name: &'static str,
    needed: fn(&Needs) -> bool,
    present: fn(&DeviceProfile) -> bool,
}

const ABILITIES: &[Ability] = &[
    Ability { name: "64-bit integers", needed: |n| n.int64, present: |p| p.supports_int64 },
    Ability { name: "f64", needed: |n| n.f64, present: |p| p.supports_f64 },
    Ability { name: "f16 elements", needed: |n| n.f16_storage, present: |p| p.supports_f16 },
    Ability { name: "bf16 elements", needed: |n| n.bf16_storage, present: |p| p.supports_bf16 },
    Ability {
        name: "elements of one or two bytes",
        needed: |n| n.narrow_storage,
        present: |p| p.supports_narrow_storage,
    },
    Ability { name: "64-bit atomics", needed: |n| n.atomic64, present: |p| p.supports_atomic64 },
    Ability { name: "subgroup ops", needed: |n| n.subgroups, present: |p| p.supports_subgroup_ops },
    Ability { name: "subgroup shuffles", needed: |n| n.shuffle, present: |p| p.has_subgroup_shuffle },
    Ability { name: "workgroup memory", needed: |n| n.workgroup_bytes > 0, present: |p| p.has_shared_memory },
];

fn check_abilities(profile: &DeviceProfile, needs: &Needs) -> Result<(), BackendError> {
    if profile.device_class == DeviceClass::Unknown {
        return Ok(());
    }
    let missing: Vec<&Ability> =
        ABILITIES.iter().filter(|ability| (ability.needed)(needs) && !(ability.present)(profile)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let has_all = |other: &&DeviceProfile| missing.iter().all(|ability| (ability.present)(other));
    let others: Vec<&str> = known_profiles().iter().filter(has_all).map(|other| other.backend).collect();
    let names: Vec<&str> = missing.iter().map(|ability| ability.name).collect();
    Err(unsupported(profile.backend, names.join(", "), &others))
}

fn check_memory(profile: &DeviceProfile, kernel: &KernelBody) -> Result<(), BackendError> {
    let (wanted, limit) = (kernel.needs.workgroup_bytes, u64::from(profile.max_shared_memory_bytes));
    if exceeds(wanted, limit) {
        let what = format!("{wanted} bytes of workgroup memory (at most {limit} on its device)");
        return Err(unsupported(profile.backend, what, &[]));
    }
    let limit = profile.max_storage_buffer_binding_size;
    for buffer in kernel.buffers.iter().filter(|buffer| buffer.decl.access != Access::Workgroup) {
        let bytes = u64::from(buffer.decl.count) * buffer.decl.element.size() as u64;
        if exceeds(bytes, limit) {
            let name = &buffer.decl.name;
            let what = format!("the {bytes} bytes of buffer `{name}` (at most {limit} on its device)");
            return Err(unsupported(profile.backend, what, &[]));
        }
    }
    Ok(())
}

/// Checks the effective workgroup size against the device, and the grid if it is known before the
/// inputs are: by an override, or because the domain is fixed. The driver calls this for every
/// pipeline it makes; a native pipeline calls it for a call with its own overrides.
pub fn check_shape(
    profile: &DeviceProfile,
    kernel: &KernelBody,
    config: &DispatchConfig,
) -> Result<(), BackendError> {
    let workgroup = config.workgroup_override.unwrap_or(kernel.workgroup_size);
    if workgroup.contains(&0) {
        let message = format!("workgroup size {workgroup:?} has a zero axis");
        return Err(fault(Code::GridSize, message, "give every axis at least 1"));
    }
    if config.elements_per_invocation == Some(0) {
        let message = "elements_per_invocation is 0".into();
        return Err(fault(Code::GridSize, message, "give every invocation at least 1 element"));
    }
    check_workgroup(profile, workgroup)?;
    check_subgroup(profile, kernel, config)?;
    match (config.grid_override, config.domain_override.or_else(|| fixed_domain(kernel))) {
        (Some(grid), _) => check_grid(profile, grid),
        (None, Some(domain)) => {
            let per_invocation = [config.elements_per_invocation.unwrap_or(1), 1, 1];
            let covering = |k: usize| {
                u64::from(domain[k]).div_ceil(u64::from(workgroup[k]) * u64::from(per_invocation[k]))
            };
            let grid = std::array::from_fn(|k| u32::try_from(covering(k)).unwrap_or(u32::MAX));
            if kernel.shape_free { check_foldable_grid(profile, grid) } else { check_grid(profile, grid) }
        }
        (None, None) => Ok(()),
    }
}

pub(crate) fn check_workgroup(profile: &DeviceProfile, workgroup: [u32; 3]) -> Result<(), BackendError> {
    let limits = profile.max_workgroup_size;
    if (0..3).any(|k| exceeds(workgroup[k].into(), limits[k].into())) {
        let what = format!("workgroup size {workgroup:?} (at most {limits:?} on its device)");
        return Err(unsupported(profile.backend, what, &[]));
    }
    let invocations = workgroup.iter().fold(1u64, |product, &n| product.saturating_mul(n.into()));
    let limit = profile.max_invocations_per_workgroup;
    if exceeds(invocations, limit.into()) {
        let what = format!("{invocations} invocations per workgroup (at most {limit} on its device)");
        return Err(unsupported(profile.backend, what, &[]));
    }
    Ok(())
}

/// Refuses a subgroup size that the device does not have, if the kernel depends on it. An oracle
/// runs at any size.
fn check_subgroup(
    profile: &DeviceProfile,
    kernel: &KernelBody,
    config: &DispatchConfig,
) -> Result<(), BackendError> {
    let own = profile.subgroup_size;
    match config.subgroup_size.filter(|&size| kernel.needs.subgroups && size != own) {
        Some(size) if !backend_is_oracle(profile.backend) && own > 0 => {
            let what = format!("subgroups of {size} lanes (its device has {own})");
            Err(unsupported(profile.backend, what, &[]))
        }
        Some(_) | None => Ok(()),
    }
}

pub(crate) fn check_grid(profile: &DeviceProfile, grid: [u32; 3]) -> Result<(), BackendError> {
    let limit = profile.max_workgroups_per_dimension;
    if grid.iter().any(|&groups| exceeds(groups.into(), limit.into())) {
        let what = format!("a grid of {grid:?} workgroups (at most {limit} per axis on its device)");
        return Err(unsupported(profile.backend, what, &[]));
    }
    Ok(())
}

/// Checks the grid of a shape-free kernel: the backend can fold it over the axes, so only the
/// product counts.
fn check_foldable_grid(profile: &DeviceProfile, grid: [u32; 3]) -> Result<(), BackendError> {
    let limit = u128::from(profile.max_workgroups_per_dimension);
    let groups: u128 = grid.iter().map(|&groups| u128::from(groups)).product();
    if limit > 0 && groups > limit * limit * limit {
        let what = format!("a grid of {groups} workgroups (at most {limit} per axis on its device)");
        return Err(unsupported(profile.backend, what, &[]));
    }
    Ok(())
}

fn fixed_domain(kernel: &KernelBody) -> Option<[u32; 3]> {
    match &kernel.domain {
        KernelDomain::Counts(counts) => Some(*counts),
        KernelDomain::Axes(_) | KernelDomain::Given => None,
        KernelDomain::LenOf(id) => {
            let count = kernel.buffer(*id).decl.count;
            (count > 0).then_some([count, 1, 1])
        }
    }
}

/// Whether a known limit is exceeded; 0 means unknown.
fn exceeds(wanted: u64, limit: u64) -> bool {
    limit > 0 && wanted > limit
}

fn fault(code: Code, message: String, help: &str) -> BackendError {
    let item = Diagnostic::new(code, message).help(help);
    BackendError::InvalidProgram { diagnostics: Diagnostics::from(vec![item]) }
}

fn unsupported(backend: &str, what: String, others: &[&str]) -> BackendError {
    let name = if others.is_empty() {
        what
    } else {
        format!("{what}; linked backends that do: {}", others.join(", "))
    };
    BackendError::UnsupportedFeature { name, backend: backend.into() }
}
