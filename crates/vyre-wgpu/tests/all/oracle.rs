//! Kernels that together exercise every part of the emitter, compared with the interpreter bit for
//! bit, and device behaviour beyond computing: traps, limits, resident buffers, batches, lost
//! devices.

use std::sync::Arc;
use vyre_conform::samples::{BARRIERS, DIVERGENT_LOOPS, ELEMENTWISE, MIXED, assert_agrees, assert_traps};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, Resource, Schedule, VyreBackend, pipeline,
};
use vyre_foundation::text::parse;
use vyre_reference::CpuRef;
use vyre_wgpu::Wgpu;

/// The backend; prints SKIP with the reason if it cannot be used.
fn gpu() -> Option<Arc<Wgpu>> {
    Wgpu::new().map(Arc::new).inspect_err(|error| eprintln!("SKIP wgpu: {error}")).ok()
}

fn check(source: &str) -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let subgroup_size = Some(gpu.device_profile().subgroup_size).filter(|&size| size > 0);
    for (length, elements_per_invocation) in
        [(0, None), (1, Some(4)), (7, None), (64, Some(3)), (127, Some(1)), (1003, Some(16))]
    {
        let config = DispatchConfig { subgroup_size, elements_per_invocation, ..DispatchConfig::default() };
        assert_agrees(&*gpu, source, length, &config)?;
    }
    Ok(())
}

#[test]
fn elementwise() -> Result<(), BackendError> {
    check(ELEMENTWISE)
}

#[test]
fn divergent_loops() -> Result<(), BackendError> {
    check(DIVERGENT_LOOPS)
}

#[test]
fn barriers_and_workgroup_memory() -> Result<(), BackendError> {
    check(BARRIERS)
}

#[test]
fn functions_arrays_exits_narrow_types_and_atomics() -> Result<(), BackendError> {
    check(MIXED)
}

#[test]
fn a_trap_gives_its_code() -> Result<(), BackendError> {
    gpu().map_or(Ok(()), |gpu| assert_traps(&*gpu))
}

/// Software Vulkan ends loops after 65,535 rounds: loops not proved shorter are refused, and the
/// others give correct results.
#[test]
fn loops_are_run_to_their_end_or_refused() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let limited = gpu.device_profile().device_name.contains("llvmpipe");
    let run = |loops: &str, n: u32| {
        let program = parse(&format!(
            "kernel count(n: u32 uniform, x: read u32[], out: output u32[] len_of x) over x workgroup 8 {{
               region \"r\" {{
                 let k = 0
                 {loops}
                 out[invocation.x] = k }} }}"
        ))?;
        let x: Vec<u8> = (0..9).flat_map(|k| (n / (k + 1)).to_le_bytes()).collect();
        let inputs: [&[u8]; 2] = [&n.to_le_bytes(), &x];
        let expected = CpuRef.dispatch_borrowed(&program, &inputs, &DispatchConfig::default())?;
        match gpu.dispatch_borrowed(&program, &inputs, &DispatchConfig::default()) {
            Ok(outputs) => {
                assert_eq!(outputs, expected, "{loops} with {n}");
                Ok(true)
            }
            Err(BackendError::UnsupportedFeature { name, .. }) => {
                assert!(limited && name.contains("`count`") && name.contains("65535 rounds"), "{name}");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    };
    let by_length = "for j in 0..n { k += j }";
    let nested = "for i in 0..n { for j in 0..(x[invocation.x] & 1) { k = k * 3 + i } }";
    let by_data = "while k < x[invocation.x] { k += 1 }";
    for (loops, n, proved) in [
        (by_length, 10, true),
        (by_length, 65_534, true),
        (by_length, 65_535, false),
        (by_length, 200_000, false),
        // The inner loop's final test takes a round too: three per outer round in all.
        (nested, 21_844, true),
        (nested, 21_845, false),
        (nested, 30_000, false),
        (by_data, 5, true),
        (by_data, 200_000, false),
    ] {
        assert_eq!(run(loops, n)?, proved || !limited, "{loops} with {n}");
    }
    Ok(())
}

fn bytes_of(numbers: impl IntoIterator<Item = f32>) -> Vec<u8> {
    numbers.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn compiled(gpu: &Arc<Wgpu>, source: &str) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
    pipeline::compile(gpu.clone(), &parse(source)?, &DispatchConfig::default())
}

#[test]
fn every_way_to_dispatch_gives_the_same() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let saxpy = compiled(&gpu, ELEMENTWISE)?;
    let config = DispatchConfig::default();
    let (a, x) = (bytes_of([2.0]), bytes_of((0..1000).map(|k| k as f32)));
    let y = bytes_of((0..1000).map(|k| k as f32 * 0.5));
    let expected = bytes_of((0..1000).map(|k| k as f32 * 2.5));
    let inputs: [&[u8]; 3] = [&a, &x, &y];
    assert_eq!(saxpy.dispatch_borrowed(&inputs, &config)?, std::slice::from_ref(&expected));

    let mut slots = vec![Vec::with_capacity(8000), vec![1, 2, 3]];
    let address = slots[0].as_ptr();
    saxpy.dispatch_borrowed_into(&inputs, &config, &mut slots)?;
    assert_eq!(slots, std::slice::from_ref(&expected));
    assert_eq!(slots[0].as_ptr(), address);

    let batch = saxpy.dispatch_borrowed_batched(&[&inputs, &inputs, &inputs], &config)?;
    assert_eq!(batch, vec![vec![expected.clone()]; 3]);

    let mut in_place = y.clone();
    let mut bindings = [Binding::Read(&a), Binding::Read(&x), Binding::ReadWrite(&mut in_place)];
    saxpy.dispatch_bound(&mut bindings, &config)?;
    assert_eq!(in_place, expected);

    let timed = saxpy.dispatch_timed(&inputs, &config)?;
    assert_eq!(timed.outputs, std::slice::from_ref(&expected));
    assert_eq!(timed.device.is_some(), gpu.device_profile().supports_device_timestamps);

    let [held_a, held_x, held_y] = [&a, &x, &y].map(|bytes| {
        let handle = gpu.allocate_resident(bytes.len())?;
        gpu.upload_resident(handle, 0, bytes)?;
        Ok::<u64, BackendError>(handle)
    });
    let (held_a, held_x, held_y) = (held_a?, held_x?, held_y?);
    let resources =
        [Resource::Resident(held_a), Resource::Borrowed(x.clone()), Resource::Borrowed(y.clone())];
    assert_eq!(saxpy.dispatch_persistent_handles(&resources, &config)?, std::slice::from_ref(&expected));
    let mut bindings = [Binding::Resident(held_a), Binding::Resident(held_x), Binding::Resident(held_y)];
    saxpy.dispatch_bound(&mut bindings, &config)?;
    let mut found = vec![0; expected.len()];
    gpu.download_resident(held_y, 0, &mut found)?;
    assert_eq!(found, expected);

    let mut twice = [Binding::Resident(held_a), Binding::Resident(held_y), Binding::Resident(held_y)];
    assert!(matches!(saxpy.dispatch_bound(&mut twice, &config), Err(BackendError::DispatchFailed { .. })));
    gpu.free_resident(held_x)?;
    assert!(gpu.free_resident(held_x).is_err());
    assert!(saxpy.dispatch_bound(&mut [Binding::Resident(held_x)], &config).is_err());
    Ok(())
}

#[test]
fn resident_buffers_are_bytes() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let handle = gpu.allocate_resident(11)?;
    let read = |offset: usize, length: usize| -> Result<Vec<u8>, BackendError> {
        let mut bytes = vec![9; length];
        gpu.download_resident(handle, offset, &mut bytes)?;
        Ok(bytes)
    };
    assert_eq!(read(0, 11)?, [0; 11]);
    gpu.upload_resident(handle, 3, &[1, 2, 3, 4, 5, 6])?;
    gpu.upload_resident(handle, 10, &[7])?;
    assert_eq!(read(0, 11)?, [0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 7]);
    assert_eq!(read(5, 2)?, [3, 4]);
    assert!(gpu.upload_resident(handle, 6, &[0; 6]).is_err());
    assert!(gpu.download_resident(handle, usize::MAX, &mut [0]).is_err());
    gpu.free_resident(handle)
}

#[test]
fn outputs_read_as_zero_until_written() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let half = compiled(
        &gpu,
        "kernel half(n: u32 uniform, y: output u32[1000]) workgroup 64 {
           region \"r\" { if invocation.x < n { y[invocation.x] = y[invocation.x] + 1 } } }",
    )?;
    let expected = |n: usize| (0..1000).flat_map(|k| u32::from(k < n).to_le_bytes()).collect::<Vec<u8>>();
    for n in [1000_usize, 3, 1000, 0, 500] {
        let outputs = half.dispatch_borrowed(&[&(n as u32).to_le_bytes()], &DispatchConfig::default())?;
        assert_eq!(outputs, [expected(n)], "{n}");
    }
    let held = gpu.allocate_resident(4000)?;
    gpu.upload_resident(held, 0, &[0xFF; 4000])?;
    let n = 7_u32.to_le_bytes();
    half.dispatch_bound(&mut [Binding::Read(&n), Binding::Resident(held)], &DispatchConfig::default())?;
    let mut found = vec![0; 4000];
    gpu.download_resident(held, 0, &mut found)?;
    assert_eq!(found, expected(7));
    Ok(())
}

#[test]
fn grids_beyond_the_devices_axes_are_folded() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let source = "kernel ids(y: read_write u32[]) over y workgroup 1 {
        region \"r\" { y[invocation.x] = y[invocation.x] + workgroup.x * 2 + grid_size.x + local.x } }";
    let ids = compiled(&gpu, source)?;
    let count = 70_000_u32;
    let y = vec![0; count as usize * 4];
    let outputs = ids.dispatch_borrowed(&[&y], &DispatchConfig::default())?;
    let expected: Vec<u8> = (0..count).flat_map(|k| (k * 2 + count).to_le_bytes()).collect();
    assert!(outputs == [expected]);
    let grid = DispatchConfig { grid_override: Some([3, 70_000, 1]), ..DispatchConfig::default() };
    let rows = compiled(
        &gpu,
        "kernel rows(y: read_write u32[]) over [1, 1, 1] workgroup 2 {
           region \"r\" { atomic_add(y, invocation.y, invocation.x + 1) } }",
    )?;
    let outputs = rows.dispatch_borrowed(&[&y], &grid)?;
    assert!(outputs == [21_u32.to_le_bytes().repeat(count as usize)]);
    Ok(())
}

/// More elements than a grid of small workgroups can hold on one axis.
#[test]
fn large_dispatches_work_at_any_size() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let program = parse(
        "kernel count(y: output u32[16777216]) workgroup 64 {
           region \"r\" { y[invocation.x] = invocation.x * 3 } }",
    )?;
    let limit = gpu.device_profile().max_invocations_per_workgroup;
    for (size, elements) in [(7, 16), (64, 1), (limit, 1)] {
        let config = DispatchConfig {
            workgroup_override: Some([size, 1, 1]),
            elements_per_invocation: Some(elements),
            ..DispatchConfig::default()
        };
        let outputs = gpu.dispatch_borrowed(&program, &[], &config)?;
        let words = outputs[0].as_chunks::<4>().0.iter().enumerate();
        let wrong = words.filter(|(k, word)| u32::from_le_bytes(**word) != *k as u32 * 3).count();
        assert_eq!((outputs[0].len(), wrong), (4 << 24, 0), "workgroups of {size}");
    }
    Ok(())
}

/// Workgroups of every kind of size and shape, over a domain that none of them divides;
/// `examples/sweep.rs` runs larger domains at every size.
#[test]
fn every_shape_of_workgroup_works() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let program = parse(
        "kernel count(y: output u32[35563]) over [61, 53, 11] workgroup 64 {
           region \"r\" {
             let at = (invocation.z * 53 + invocation.y) * 61 + invocation.x
             y[at] = at * 3 + 1 } }",
    )?;
    let profile = gpu.device_profile();
    let limit = profile.max_invocations_per_workgroup;
    let powers = (0..32).map(|bit| 1_u32 << bit).take_while(|&size| size <= limit);
    let sizes: Vec<u32> = powers.chain([3, 7, 33, 100, 255, limit - 1]).collect();
    let shapes = sizes.iter().flat_map(|&n| [[n, 1, 1], [1, n, 1], [1, 1, n], [n.div_ceil(4), 2, 2]]);
    let fits = |shape: &[u32; 3]| {
        let within = (0..3).all(|axis| shape[axis] <= profile.max_workgroup_size[axis]);
        within && shape.iter().product::<u32>() <= limit
    };
    for shape in shapes.filter(fits) {
        let config = DispatchConfig {
            workgroup_override: Some(shape),
            elements_per_invocation: Some(1 + shape[0] % 3),
            ..DispatchConfig::default()
        };
        let outputs = gpu.dispatch_borrowed(&program, &[], &config)?;
        let words = outputs[0].as_chunks::<4>().0.iter().enumerate();
        let wrong = words.filter(|(k, word)| u32::from_le_bytes(**word) != *k as u32 * 3 + 1).count();
        assert_eq!((outputs[0].len(), wrong), (4 * 35_563, 0), "workgroups of {shape:?}");
    }
    Ok(())
}

/// A dispatch that exceeds its deadline loses the device; the next call opens another.
#[test]
fn a_lost_device_is_replaced() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let source = "kernel work(y: read_write u32[]) over y workgroup 64 {
        region \"r\" { let v = y[invocation.x]
          for k in 0..500 { v = v * 1664525 + 1013904223 }
          y[invocation.x] = v } }";
    let work = compiled(&gpu, source)?;
    let held = gpu.allocate_resident(16)?;
    let y = vec![1; 1 << 22];
    let hurried =
        DispatchConfig { timeout: Some(std::time::Duration::from_nanos(1)), ..DispatchConfig::default() };
    let ended = work.dispatch_borrowed(&[&y], &hurried);
    let Err(ended @ BackendError::Timeout { .. }) = ended else { panic!("{ended:?}") };
    assert!(ended.to_string().contains("kernel `work`"), "{ended}");
    let lost = gpu.upload_resident(held, 0, &[1]);
    assert!(matches!(lost, Err(BackendError::DeviceLost { .. })), "{lost:?}");
    let expected = CpuRef.dispatch_borrowed(&parse(source)?, &[&y[..64]], &DispatchConfig::default())?;
    assert_eq!(work.dispatch_borrowed(&[&y[..64]], &DispatchConfig::default())?, expected);
    gpu.free_resident(held)
}

#[test]
fn what_cannot_be_is_refused_with_a_reason() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let run = |config: DispatchConfig| {
        gpu.dispatch(&parse(ELEMENTWISE)?, &[vec![0; 4], vec![0; 4], vec![0; 4]], &config)
    };
    let sized = |size| DispatchConfig { workgroup_override: Some(size), ..DispatchConfig::default() };
    assert!(matches!(run(sized([1 << 20, 1, 1])), Err(BackendError::UnsupportedFeature { .. })));
    assert!(matches!(run(sized([0, 1, 1])), Err(BackendError::InvalidProgram { .. })));
    let small = DispatchConfig { max_output_bytes: Some(3), ..DispatchConfig::default() };
    assert!(matches!(run(small), Err(BackendError::DispatchFailed { .. })));
    assert!(matches!(
        gpu.dispatch(&parse(ELEMENTWISE)?, &[vec![0; 4]], &DispatchConfig::default()),
        Err(BackendError::InvalidProgram { .. })
    ));
    assert!(gpu.allocate_resident(1 << 50).is_err());
    assert!(Wgpu::open(99).is_err());
    Ok(())
}

#[test]
fn schedules_and_sizes_give_the_same() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let program = parse(ELEMENTWISE)?;
    let (a, x) = (bytes_of([-0.75]), bytes_of((0..777).map(|k| k as f32 * 0.37)));
    let inputs: [&[u8]; 3] = [&a, &x, &x];
    let expected = CpuRef.dispatch_borrowed(&program, &inputs, &DispatchConfig::default())?;
    let limit = gpu.device_profile().max_invocations_per_workgroup;
    for schedule in [Schedule::Off, Schedule::Cheap, Schedule::Expensive] {
        for size in [1, 3, 32, 64, 100, 256, limit] {
            let config = DispatchConfig {
                schedule: Some(schedule),
                workgroup_override: Some([size, 1, 1]),
                ..DispatchConfig::default()
            };
            assert_eq!(gpu.dispatch_borrowed(&program, &inputs, &config)?, expected, "{schedule:?} {size}");
        }
    }
    Ok(())
}

/// Without optimization, a literal zero divisor is only discovered during emission.
#[test]
fn divisors_that_turn_out_to_be_zero() -> Result<(), BackendError> {
    let Some(gpu) = gpu() else { return Ok(()) };
    let program = parse(
        "kernel zero(x: read u32[], y: output u32[]) over x workgroup 8 {
           region \"r\" { let v = x[invocation.x]
             y[invocation.x] = v / (v % 0) + v % u32(v % 0) + v / (v % 0 / 0) } }",
    )?;
    let x: Vec<u8> = (0..9_u32).flat_map(u32::to_le_bytes).collect();
    let expected = CpuRef.dispatch_borrowed(&program, &[&x], &DispatchConfig::default())?;
    for schedule in [Schedule::Off, Schedule::Cheap, Schedule::Expensive] {
        let config = DispatchConfig { schedule: Some(schedule), ..DispatchConfig::default() };
        assert_eq!(gpu.dispatch_borrowed(&program, &[&x], &config)?, expected, "{schedule:?}");
    }
    Ok(())
}
