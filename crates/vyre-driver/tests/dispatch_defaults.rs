//! Default methods of a pipeline: which calls which, how the caller's slots are used, and which of
//! them counts.

use std::cell::RefCell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vyre_driver::observability::{
    DispatchTelemetry, LaunchRecord, observe_launch, record_launch, snapshot_dispatch_telemetry,
};
use vyre_driver::{
    BackendError, Binding, CompiledPipeline, DispatchConfig, OutputBuffers, Resource, VyreBackend,
};
use vyre_foundation::ir::Program;

type Outputs = Result<OutputBuffers, BackendError>;

thread_local! {
    /// Overridden methods that ran, in order.
    static CALLS: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

fn called(name: &'static str) {
    CALLS.with_borrow_mut(|calls| calls.push(name));
}

fn owned(inputs: &[&[u8]]) -> OutputBuffers {
    inputs.iter().map(|input| input.to_vec()).collect()
}

/// A pipeline that returns its inputs and overrides the listed methods.
macro_rules! pipeline {
    ($name:ident { $($methods:item)* }) => {
        struct $name;
        impl CompiledPipeline for $name {
            fn id(&self) -> &str {
                stringify!($name)
            }
            fn dispatch(&self, inputs: &[Vec<u8>], _: &DispatchConfig) -> Outputs {
                called("dispatch");
                Ok(inputs.to_vec())
            }
            $($methods)*
        }
    };
}

pipeline!(OnlyDispatch {});

pipeline!(Borrowed {
    fn dispatch_borrowed(&self, inputs: &[&[u8]], _: &DispatchConfig) -> Outputs {
        called("dispatch_borrowed");
        Ok(owned(inputs))
    }
});

pipeline!(Into {
    fn dispatch_borrowed_into(
        &self,
        inputs: &[&[u8]],
        _: &DispatchConfig,
        slots: &mut OutputBuffers,
    ) -> Result<(), BackendError> {
        called("dispatch_borrowed_into");
        // A native pipeline does its own counting; inside a batch, the batch counts.
        record_launch(LaunchRecord { input_bytes: 1000, ..Default::default() });
        slots.resize_with(inputs.len(), Vec::new);
        for (slot, input) in slots.iter_mut().zip(inputs) {
            slot.clear();
            slot.extend_from_slice(input);
        }
        Ok(())
    }
});

pipeline!(BatchedInto {
    fn dispatch_borrowed_batched_into(
        &self,
        items: &[&[&[u8]]],
        _: &DispatchConfig,
        slots: &mut Vec<OutputBuffers>,
    ) -> Result<(), BackendError> {
        called("dispatch_borrowed_batched_into");
        *slots = items.iter().map(|inputs| owned(inputs)).collect();
        Ok(())
    }
});

pipeline!(Handles {
    fn dispatch_persistent_handles(&self, inputs: &[Resource], _: &DispatchConfig) -> Outputs {
        called("dispatch_persistent_handles");
        Ok(vec![vec![inputs.len() as u8]])
    }
});

/// Counters are per process, so the tests take turns.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the work; returns its result, the overridden methods that ran, and the counters.
fn watch<T>(work: impl FnOnce() -> T) -> (T, Vec<&'static str>, DispatchTelemetry) {
    CALLS.take();
    let before = snapshot_dispatch_telemetry();
    let result = work();
    (result, CALLS.take(), snapshot_dispatch_telemetry().since(&before))
}

const INPUTS: [&[u8]; 2] = [b"ab", b"cde"];
const CONFIG: DispatchConfig = DispatchConfig {
    profile: None,
    ulp_budget: None,
    timeout: None,
    label: None,
    max_output_bytes: None,
    workgroup_override: None,
    grid_override: None,
    domain_override: None,
    fallback: None,
    schedule: None,
    elements_per_invocation: None,
    subgroup_size: None,
    native_math: None,
    asserts: None,
    cancellation: None,
};

#[test]
fn each_default_calls_the_method_it_is_named_after() {
    let _turn = alone();
    let held = INPUTS.map(|input| Resource::Borrowed(input.to_vec()));
    let items: [&[&[u8]]; 2] = [&INPUTS, &INPUTS[..1]];
    let check = |pipeline: &dyn CompiledPipeline, expected: [&[&'static str]; 8]| {
        let mut slots = OutputBuffers::new();
        let mut batch_slots = Vec::new();
        let (_, borrowed, _) = watch(|| pipeline.dispatch_borrowed(&INPUTS, &CONFIG).unwrap());
        let (_, into, _) = watch(|| pipeline.dispatch_borrowed_into(&INPUTS, &CONFIG, &mut slots).unwrap());
        let (_, batched, _) = watch(|| pipeline.dispatch_borrowed_batched(&items, &CONFIG).unwrap());
        let (_, batched_into, _) =
            watch(|| pipeline.dispatch_borrowed_batched_into(&items, &CONFIG, &mut batch_slots).unwrap());
        let (_, handles, _) = watch(|| pipeline.dispatch_persistent_handles(&held, &CONFIG).unwrap());
        let (_, handles_into, _) =
            watch(|| pipeline.dispatch_persistent_handles_into(&held, &CONFIG, &mut slots).unwrap());
        let (_, timed, _) = watch(|| pipeline.dispatch_timed(&INPUTS, &CONFIG).unwrap());
        let mut memory = *b"ab";
        let (_, bound, _) =
            watch(|| pipeline.dispatch_bound(&mut [Binding::ReadWrite(&mut memory)], &CONFIG).unwrap());
        let seen = [borrowed, into, batched, batched_into, handles, handles_into, timed, bound];
        assert_eq!(seen, expected, "{}", pipeline.id());
    };
    const D: &str = "dispatch";
    const B: &str = "dispatch_borrowed";
    const I: &str = "dispatch_borrowed_into";
    const N: &str = "dispatch_borrowed_batched_into";
    const H: &str = "dispatch_persistent_handles";
    check(&OnlyDispatch, [&[D], &[D], &[D, D], &[D, D], &[D], &[D], &[D], &[D]]);
    check(&Borrowed, [&[B], &[B], &[B, B], &[B, B], &[B], &[B], &[B], &[B]]);
    check(&Into, [&[D], &[I], &[I, I], &[I, I], &[D], &[D], &[D], &[D]]);
    check(&BatchedInto, [&[D], &[D], &[N], &[N], &[D], &[D], &[D], &[D]]);
    check(&Handles, [&[D], &[D], &[D, D], &[D, D], &[H], &[H], &[D], &[D]]);
}

#[test]
fn slots_that_fit_are_written_into_and_keep_their_addresses() {
    let _turn = alone();
    // The first slot is large enough, the second is not, the third is superfluous.
    let mut slots = Vec::with_capacity(4);
    slots.extend([Vec::with_capacity(2), Vec::with_capacity(2), vec![9; 9]]);
    slots[0].push(77);
    let (outer, first, second) = (slots.as_ptr(), slots[0].as_ptr(), slots[1].as_ptr());
    let (_, _, seen) = watch(|| Borrowed.dispatch_borrowed_into(&INPUTS, &CONFIG, &mut slots).unwrap());
    assert_eq!(slots, owned(&INPUTS));
    assert_eq!((slots.as_ptr(), slots[0].as_ptr()), (outer, first));
    assert_ne!(slots[1].as_ptr(), second);
    assert_eq!((seen.launches, seen.output_slots), (1, 2));
    assert_eq!((seen.output_slots_reused, seen.output_slots_moved), (1, 1));
    assert_eq!((seen.input_bytes, seen.output_bytes), (5, 5));

    // Once the slots are large enough, nothing is reallocated.
    let addresses: Vec<*const u8> = slots.iter().map(|slot| slot.as_ptr()).collect();
    let (_, _, seen) = watch(|| Borrowed.dispatch_borrowed_into(&INPUTS, &CONFIG, &mut slots).unwrap());
    assert_eq!(slots.iter().map(|slot| slot.as_ptr()).collect::<Vec<_>>(), addresses);
    assert_eq!((seen.output_slots_reused, seen.output_slots_moved), (2, 0));

    // Missing slots are created; a vector with capacity for them keeps its address.
    let mut slots = Vec::with_capacity(2);
    let outer = slots.as_ptr();
    let (_, _, seen) = watch(|| OnlyDispatch.dispatch_borrowed_into(&INPUTS, &CONFIG, &mut slots).unwrap());
    assert_eq!((slots.as_ptr(), slots.len()), (outer, 2));
    assert_eq!((seen.output_slots_reused, seen.output_slots_moved), (0, 2));

    let held = INPUTS.map(|input| Resource::Borrowed(input.to_vec()));
    let first = slots[0].as_ptr();
    let (_, _, seen) =
        watch(|| OnlyDispatch.dispatch_persistent_handles_into(&held, &CONFIG, &mut slots).unwrap());
    assert_eq!(slots[0].as_ptr(), first);
    assert_eq!((seen.launches, seen.input_bytes, seen.output_slots_reused), (1, 5, 2));
}

#[test]
fn batches_count_each_item_and_reuse_slots() {
    let _turn = alone();
    let items: [&[&[u8]]; 3] = [&INPUTS, &[], &INPUTS[..1]];
    let mut slots: Vec<OutputBuffers> = vec![vec![Vec::with_capacity(8), Vec::with_capacity(8)]; 5];
    for slot in slots.iter_mut().flatten() {
        slot.reserve(8);
    }
    let address = slots[0][1].as_ptr();
    let (_, _, seen) =
        watch(|| Borrowed.dispatch_borrowed_batched_into(&items, &CONFIG, &mut slots).unwrap());
    assert_eq!(slots, [owned(&INPUTS), vec![], owned(&INPUTS[..1])]);
    assert_eq!(slots[0][1].as_ptr(), address);
    assert_eq!((seen.launches, seen.output_slots, seen.output_slots_reused), (3, 3, 3));
    assert_eq!((seen.input_bytes, seen.output_bytes), (7, 7));

    // A native method inside a batch does not count: the batch has counted, with the same view of
    // the slots.
    let (_, calls, seen) =
        watch(|| Into.dispatch_borrowed_batched_into(&items, &CONFIG, &mut slots).unwrap());
    assert_eq!(calls.len(), 3);
    assert_eq!((seen.launches, seen.input_bytes), (3, 7));
    assert_eq!((seen.output_slots_reused, seen.output_slots_moved), (3, 0));

    // Outside a batch, it counts.
    let (_, _, seen) = watch(|| Into.dispatch_borrowed_into(&INPUTS, &CONFIG, &mut slots[0]).unwrap());
    assert_eq!((seen.launches, seen.input_bytes), (1, 1000));

    let (results, _, seen) = watch(|| OnlyDispatch.dispatch_borrowed_batched(&items, &CONFIG).unwrap());
    assert_eq!(results, [owned(&INPUTS), vec![], owned(&INPUTS[..1])]);
    assert_eq!(seen.launches, 3);
}

#[test]
fn resident_buffers_are_refused_by_default() {
    let _turn = alone();
    let refused = |result: Result<(), BackendError>| match result {
        Err(BackendError::UnsupportedFeature { name, backend }) => {
            assert_eq!((&*name, &*backend), ("resident buffers", "OnlyDispatch"))
        }
        other => panic!("{other:?}"),
    };
    let mixed = [Resource::Borrowed(vec![1]), Resource::Resident(7)];
    let (result, calls, seen) = watch(|| OnlyDispatch.dispatch_persistent_handles(&mixed, &CONFIG).map(drop));
    refused(result);
    assert!(calls.is_empty());
    assert_eq!((seen.launches, seen.failed_launches), (0, 1));
    refused(OnlyDispatch.dispatch_bound(&mut [Binding::Read(&[1]), Binding::Resident(7)], &CONFIG));
    let mut slots = vec![vec![5]];
    refused(OnlyDispatch.dispatch_persistent_handles_into(&mixed, &CONFIG, &mut slots));
    assert_eq!(slots, [vec![5]], "an error leaves the slots as they were");
}

#[test]
fn bound_memory_is_read_and_written_in_binding_order() {
    let _turn = alone();
    // The pipeline returns its inputs: the read buffer comes first, so its bytes go to the first
    // writable binding.
    let (mut updated, mut written) = (*b"bb", *b"..");
    let (_, _, seen) = watch(|| {
        let bindings =
            &mut [Binding::Read(b"aa"), Binding::ReadWrite(&mut updated), Binding::Write(&mut written)];
        OnlyDispatch.dispatch_bound(bindings, &CONFIG).unwrap();
    });
    assert_eq!((&updated, &written), (b"aa", b"bb"));
    assert_eq!((seen.launches, seen.output_slots, seen.output_slots_reused), (1, 2, 2));
    assert_eq!((seen.input_bytes, seen.output_bytes), (4, 4));

    let fails = |bindings: &mut [Binding<'_>], expected: &str| {
        let error = OnlyDispatch.dispatch_bound(bindings, &CONFIG).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.code(), 5);
    };
    let mut short = *b"s";
    fails(
        &mut [Binding::Read(b"aa"), Binding::Write(&mut short)],
        "output 0 has 2 bytes, the memory bound for it has 1",
    );
    assert_eq!(&short, b"s");
    fails(&mut [Binding::Read(b"aa")], "0 buffers are bound for writing, but 1 outputs came back");
    let (mut first, mut second) = (*b"f", *b"s");
    fails(
        &mut [Binding::ReadWrite(&mut first), Binding::Write(&mut second)],
        "2 buffers are bound for writing",
    );
}

#[test]
fn errors_and_panics_leave_the_counting_in_order() {
    let _turn = alone();
    struct Unwell;
    impl CompiledPipeline for Unwell {
        fn id(&self) -> &str {
            "unwell"
        }
        fn dispatch(&self, inputs: &[Vec<u8>], _: &DispatchConfig) -> Outputs {
            match inputs.len() {
                0 => Err(BackendError::new("nothing to do")),
                1 => panic!("as asked"),
                _ => Ok(inputs.to_vec()),
            }
        }
    }
    let mut slots = vec![vec![1, 2, 3]];
    let (result, _, seen) = watch(|| Unwell.dispatch_borrowed_into(&[], &CONFIG, &mut slots));
    assert_eq!(result, Err(BackendError::new("nothing to do")));
    assert_eq!((seen.launches, seen.failed_launches), (0, 1));
    assert_eq!(slots, [vec![1, 2, 3]]);

    let (result, _, seen) = watch(|| std::panic::catch_unwind(|| Unwell.dispatch_borrowed(&[b"x"], &CONFIG)));
    assert!(result.is_err());
    assert_eq!((seen.launches, seen.failed_launches), (0, 1));
    // The panicking launch cleared its mark, so the next one counts.
    let (_, _, seen) = watch(|| Unwell.dispatch_borrowed(&INPUTS, &CONFIG).unwrap());
    assert_eq!((seen.launches, seen.failed_launches), (1, 0));

    // A batch ends at its first error; the items before it are complete and counted.
    let mut slots = Vec::new();
    let items: [&[&[u8]]; 3] = [&INPUTS, &[], &INPUTS];
    let (result, _, seen) = watch(|| Unwell.dispatch_borrowed_batched_into(&items, &CONFIG, &mut slots));
    assert!(result.is_err());
    assert_eq!((seen.launches, seen.failed_launches), (1, 1));
    assert_eq!(slots[0], owned(&INPUTS));
}

#[test]
fn the_outermost_counts_across_backends_and_pipelines() {
    let _turn = alone();
    /// A backend whose borrowed dispatch is the default, which counts unless an outer call does.
    struct Echo;
    impl VyreBackend for Echo {
        fn id(&self) -> &'static str {
            "echo"
        }
        fn dispatch(&self, _: &Program, inputs: &[Vec<u8>], _: &DispatchConfig) -> Outputs {
            Ok(inputs.to_vec())
        }
    }
    let (_, _, seen) = watch(|| Echo.dispatch_borrowed(&Program::empty(), &INPUTS, &CONFIG).unwrap());
    assert_eq!((seen.launches, seen.input_bytes, seen.output_slots), (1, 5, 2));
    let (_, _, seen) = watch(|| {
        let inner = || Echo.dispatch_borrowed(&Program::empty(), &INPUTS, &CONFIG);
        observe_launch("outer", &DispatchConfig::default(), || Ok((inner()?, LaunchRecord::default())))
            .unwrap()
    });
    assert_eq!((seen.launches, seen.input_bytes), (1, 0));

    // Marks are per thread.
    let (_, _, seen) = watch(|| {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..100).for_each(|_| drop(OnlyDispatch.dispatch_borrowed(&INPUTS, &CONFIG))));
            }
        });
    });
    assert_eq!((seen.launches, seen.input_bytes, seen.output_slots), (800, 4000, 1600));
}
