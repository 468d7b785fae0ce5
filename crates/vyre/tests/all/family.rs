//! Families of plans: the shape of a matrix product, tuned and remembered.

use std::sync::Arc;
use vyre::catalogue::matmul::{
    MatmulShape, Multiply, Sizes, matmul_shaped, shape_for, shapes_to_try, tune, tuned_shape,
};
use vyre_driver::tuner::{Mode, TuneLimits, Tuner};
use vyre_driver::{DeviceProfile, DispatchConfig, VyreBackend, registry};

#[test]
fn the_shape_of_a_product_is_tuned_within_limits_and_remembered() {
    let sizes = Sizes { rows: 40, depth: 24, columns: 33 };
    let backend: Arc<dyn VyreBackend> =
        registry::acquire("cpu").expect("the embedded backend is there").into();
    let device = backend.device_profile();
    let folder = tempfile::tempdir().expect("a folder");
    let tuner = Tuner::at(folder.path().join("tuner.toml"), Mode::On);
    assert_eq!(tuned_shape(sizes, &device, &tuner), shape_for(&device), "nothing is decided yet");
    let limits = TuneLimits::default();
    let report = tune(sizes, &backend, (&tuner, limits), &mut |_| {}).expect("there are shapes to try");
    let found = tuned_shape(sizes, &device, &tuner);
    assert_eq!(report.candidates[report.winner].name, found.to_string(), "{report}");
    tuner.persist().expect("is saved");
    let next = Tuner::at(folder.path().join("tuner.toml"), Mode::OffUseDefault);
    assert_eq!(tuned_shape(sizes, &device, &next), found);
    let plan = matmul_shaped(sizes, Multiply::Separate, found).expect("a shape of the family");
    plan.compile(backend.clone(), &DispatchConfig::default()).expect("compiles");
    let little = TuneLimits { memory_bytes: 1000, ..TuneLimits::default() };
    let refused = tune(sizes, &backend, (&tuner, little), &mut |_| {}).expect_err("too little memory");
    assert!(refused.to_string().contains("bytes"), "{refused}");
    // A device with small workgroups and short grids gets no shape beyond its limits.
    let small = DeviceProfile {
        max_invocations_per_workgroup: 64,
        max_workgroups_per_dimension: 100,
        max_shared_memory_bytes: 4096,
        ..DeviceProfile::conservative("small")
    };
    let large = Sizes { rows: 1000, depth: 8, columns: 1000 };
    for shape in shapes_to_try(large, &small).into_iter().skip(1) {
        let MatmulShape::Tiles { side, each } = shape else { panic!("{shape:?} is for processors") };
        let tile = side * each;
        assert!(side * side <= 64 && 1000_u32.div_ceil(tile) <= 100 && 8 * tile * tile <= 4096, "{shape:?}");
    }
}
