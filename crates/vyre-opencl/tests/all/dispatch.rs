//! Ways to dispatch: bound memory, resident buffers, batches, timings, and unaligned slices.

use std::sync::Arc;
use vyre_driver::{BackendError, Binding, CompiledPipeline, DispatchConfig, Resource, VyreBackend, pipeline};
use vyre_foundation::text::parse;
use vyre_opencl::OpenCl;

const SAXPY: &str = "kernel saxpy(a: f32 uniform, x: read f32[], y: read_write f32[]) over y workgroup 64 {
  region \"r\" { let i = invocation.x
    y[i] = a * x[i] + y[i] } }";

const DOUBLE: &str = "kernel double(x: read u32[], y: output u32[]) workgroup 64 {
  region \"r\" { if x[invocation.x] != 7 { y[invocation.x] = x[invocation.x] * 2 } } }";

/// The backend and a pipeline on it.
type Compiled = (Arc<OpenCl>, Arc<dyn CompiledPipeline>);

/// Opens the backend and compiles a pipeline; prints SKIP if the backend cannot be used.
fn compiled(source: &str) -> Result<Option<Compiled>, BackendError> {
    let opencl = match OpenCl::new() {
        Ok(opencl) => Arc::new(opencl),
        Err(missing) => {
            println!("SKIP {missing}");
            return Ok(None);
        }
    };
    let pipeline = pipeline::compile(opencl.clone(), &parse(source)?, &DispatchConfig::default())?;
    Ok(Some((opencl, pipeline)))
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn bound_memory_may_lie_anywhere() -> Result<(), BackendError> {
    let Some((_, saxpy)) = compiled(SAXPY)? else { return Ok(()) };
    let values: Vec<f32> = (0..1000).map(|k| k as f32).collect();
    let expected = floats(&values.iter().map(|x| 2.0 * x + x).collect::<Vec<_>>());
    for offset in 0..5 {
        let at_offset = |bytes: &[u8]| [&vec![0; offset], bytes].concat();
        let (a, x, mut y) =
            (at_offset(&floats(&[2.0])), at_offset(&floats(&values)), at_offset(&floats(&values)));
        let mut bindings =
            [Binding::Read(&a[offset..]), Binding::Read(&x[offset..]), Binding::ReadWrite(&mut y[offset..])];
        saxpy.dispatch_bound(&mut bindings, &DispatchConfig::default())?;
        assert_eq!(&y[offset..], expected, "at offset {offset}");
    }
    Ok(())
}

#[test]
fn an_output_reads_zero_where_nothing_is_written() -> Result<(), BackendError> {
    let Some((_, double)) = compiled(DOUBLE)? else { return Ok(()) };
    for offset in 0..2 {
        let x = numbers(&[1, 7, 3]);
        let mut y = vec![0xFF; 12 + offset];
        let mut bindings = [Binding::Read(&x), Binding::Write(&mut y[offset..])];
        double.dispatch_bound(&mut bindings, &DispatchConfig::default())?;
        assert_eq!(&y[offset..], numbers(&[2, 0, 6]));
    }
    Ok(())
}

#[test]
fn slots_are_written_in_place_and_kept() -> Result<(), BackendError> {
    let (Some((_, saxpy)), Some((_, double))) = (compiled(SAXPY)?, compiled(DOUBLE)?) else { return Ok(()) };
    let config = DispatchConfig::default();
    let (a, x, y) = (floats(&[2.0]), floats(&[1.0, 2.0]), floats(&[10.0, 20.0]));
    let mut slots = vec![vec![0xFF; 100], Vec::new()];
    let place = slots[0].as_ptr();
    saxpy.dispatch_borrowed_into(&[&a, &x, &y], &config, &mut slots)?;
    assert_eq!(slots, [floats(&[12.0, 24.0])]);
    assert_eq!(slots[0].as_ptr(), place);
    // Elements that the kernel does not write are zero, whatever the slot held.
    slots[0] = vec![0xFF; 100];
    double.dispatch_borrowed_into(&[&numbers(&[1, 7, 3])], &config, &mut slots)?;
    assert_eq!(slots, [numbers(&[2, 0, 6])]);
    assert!(double.dispatch_borrowed_into(&[&[1, 2, 3]], &config, &mut slots).is_err());
    assert_eq!(slots, [numbers(&[2, 0, 6])], "a refused call leaves the slots alone");
    Ok(())
}

/// Different lengths violate the assumptions of the fast code; so do domains that are not whole
/// workgroups.
#[test]
fn any_lengths_give_the_same_results() -> Result<(), BackendError> {
    let Some((_, saxpy)) = compiled(SAXPY)? else { return Ok(()) };
    let a = floats(&[2.0]);
    for (n, m) in [(5, 9), (9, 5), (1 << 15, 1 << 15), ((1 << 15) + 77, 1 << 15), (1 << 16, (1 << 16) + 3)] {
        let x: Vec<f32> = (0..n).map(|k| k as f32).collect();
        let y: Vec<f32> = (0..m).map(|k| (k % 100) as f32).collect();
        let expected: Vec<f32> = (0..m).map(|k| 2.0 * x.get(k).copied().unwrap_or(0.0) + y[k]).collect();
        let outputs = saxpy.dispatch_borrowed(&[&a, &floats(&x), &floats(&y)], &DispatchConfig::default())?;
        assert!(outputs == [floats(&expected)], "{n} and {m} elements");
    }
    Ok(())
}

#[test]
fn resident_buffers_stay_between_dispatches() -> Result<(), BackendError> {
    let Some((opencl, saxpy)) = compiled(SAXPY)? else { return Ok(()) };
    let [a, x, y] = [4, 12, 12].map(|bytes| opencl.allocate_resident(bytes));
    let (a, x, y) = (a?, x?, y?);
    opencl.upload_resident(a, 0, &floats(&[2.0]))?;
    opencl.upload_resident(x, 0, &floats(&[1.0, 2.0, 3.0]))?;
    for round in 1..4 {
        let mut bindings = [a, x, y].map(Binding::Resident);
        saxpy.dispatch_bound(&mut bindings, &DispatchConfig::default())?;
        let mut found = vec![0; 12];
        opencl.download_resident(y, 0, &mut found)?;
        assert_eq!(found, floats(&[1.0, 2.0, 3.0].map(|x| 2.0 * x * round as f32)));
    }
    let inputs = [Resource::Resident(a), Resource::Resident(x), Resource::Borrowed(floats(&[0.0; 3]))];
    let outputs = saxpy.dispatch_persistent_handles(&inputs, &DispatchConfig::default())?;
    assert_eq!(outputs, [floats(&[2.0, 4.0, 6.0])]);
    let twice = saxpy.dispatch_bound(&mut [a, x, x].map(Binding::Resident), &DispatchConfig::default());
    assert!(twice.is_err(), "what is written is bound once");
    assert!(opencl.upload_resident(x, 8, &[0; 5]).is_err(), "the range ends behind the buffer");
    opencl.free_resident(x)?;
    assert!(opencl.free_resident(x).is_err(), "it is free already");
    let freed = saxpy.dispatch_bound(&mut [a, x, y].map(Binding::Resident), &DispatchConfig::default());
    assert!(freed.is_err());
    Ok(())
}

#[test]
fn a_batch_ends_at_its_first_fault() -> Result<(), BackendError> {
    let Some((_, double)) = compiled(DOUBLE)? else { return Ok(()) };
    let inputs: Vec<Vec<u8>> = (0..100).map(|k| numbers(&[k, 7, k + 1])).collect();
    let items: Vec<[&[u8]; 1]> = inputs.iter().map(|input| [input.as_slice()]).collect();
    let mut items: Vec<&[&[u8]]> = items.iter().map(|item| item.as_slice()).collect();
    let outputs = double.dispatch_borrowed_batched(&items, &DispatchConfig::default())?;
    for (k, output) in outputs.iter().enumerate() {
        let doubled = |x: u32| if x == 7 { 0 } else { 2 * x };
        assert_eq!(output[0], numbers(&[doubled(k as u32), 0, doubled(k as u32 + 1)]));
    }
    let odd: [&[u8]; 1] = [&[1, 2, 3]];
    items[40] = &odd;
    let mut slots = Vec::new();
    let ended = double.dispatch_borrowed_batched_into(&items, &DispatchConfig::default(), &mut slots);
    assert!(matches!(ended, Err(BackendError::InvalidProgram { .. })), "{ended:?}");
    assert_eq!(slots[39][0], numbers(&[78, 0, 80]));
    assert!(slots[40].is_empty() && slots[99].is_empty());
    Ok(())
}

#[test]
fn the_device_reports_the_time_of_a_kernel() -> Result<(), BackendError> {
    let Some((_, double)) = compiled(DOUBLE)? else { return Ok(()) };
    let input = numbers(&[3; 10_000]);
    let timed = double.dispatch_timed(&[&input], &DispatchConfig::default())?;
    assert_eq!(timed.outputs, [numbers(&[6; 10_000])]);
    let device = timed.device.unwrap_or_default();
    assert!(device.as_nanos() > 0 && device <= timed.wall, "{device:?} of {:?}", timed.wall);
    Ok(())
}

#[test]
fn many_threads_share_one_pipeline() -> Result<(), BackendError> {
    let Some((_, double)) = compiled(DOUBLE)? else { return Ok(()) };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let double = &double;
            scope.spawn(move || {
                for round in 0..20 {
                    let input = numbers(&[thread * 100 + round; 50]);
                    let outputs = double.dispatch_borrowed(&[&input], &DispatchConfig::default());
                    let value = thread * 100 + round;
                    let expected = if value == 7 { 0 } else { 2 * value };
                    assert_eq!(outputs, Ok(vec![numbers(&[expected; 50])]));
                }
            });
        }
    });
    Ok(())
}

#[test]
fn several_elements_per_invocation_and_large_grids() -> Result<(), BackendError> {
    let Some((_, double)) = compiled(DOUBLE)? else { return Ok(()) };
    let values: Vec<u32> = (0..1 << 20).collect();
    let expected: Vec<u32> = values.iter().map(|&x| if x == 7 { 0 } else { 2 * x }).collect();
    let (input, expected) = (numbers(&values), numbers(&expected));
    for elements in [1, 3, 16] {
        let config = DispatchConfig { elements_per_invocation: Some(elements), ..DispatchConfig::default() };
        assert_eq!(double.dispatch_borrowed(&[&input], &config)?, std::slice::from_ref(&expected));
    }
    let config = DispatchConfig { max_output_bytes: Some(16), ..DispatchConfig::default() };
    assert!(double.dispatch_borrowed(&[&input], &config).is_err());
    let config = DispatchConfig { workgroup_override: Some([1 << 20, 1, 1]), ..DispatchConfig::default() };
    let refused = double.dispatch_borrowed(&[&input], &config);
    assert!(matches!(refused, Err(BackendError::UnsupportedFeature { .. })), "{refused:?}");
    Ok(())
}
