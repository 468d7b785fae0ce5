//! Concurrency stress: threads open a backend, compile, run and drop at once, over and over.
//!
//! All threads of a round work on one program that no driver has seen before, so that they contend
//! in the driver's compiler and in the state it shares between programs. Half of them share an
//! instance of the backend; each of the others opens its own. They run the program on the same
//! sizes in different orders: code that a driver generates on first use of a size is generated
//! while other threads run the same program. Results are compared with the known result of the
//! program.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre_driver::{BackendError, CompiledPipeline, DispatchConfig, VyreBackend, pipeline};
use vyre_foundation::text::parse;

/// Opens a new instance of the backend.
pub type Open = dyn Fn() -> Result<Arc<dyn VyreBackend>, BackendError> + Sync;

const THREADS: usize = 8;

/// Rounds before a shared instance is dropped.
const ROUNDS_PER_INSTANCE: u64 = 4;

/// Element counts of the dispatches: less than a workgroup, several workgroups, and sizes that
/// drivers split.
const SIZES: [usize; 6] = [50, 1_000, 1 << 15, 20_003, 70_001, 300_000];

/// Duration of a stress run.
#[derive(Clone, Copy, Debug)]
pub enum StressLength {
    /// This many rounds.
    Rounds(u64),
    /// Rounds until this much time has passed.
    For(Duration),
}

impl StressLength {
    /// The seconds in `VYRE_STRESS_SECONDS`, else `rounds`.
    pub fn of_environment(rounds: u64) -> StressLength {
        let seconds = std::env::var("VYRE_STRESS_SECONDS").ok().and_then(|text| text.parse().ok());
        seconds
            .map_or(StressLength::Rounds(rounds), |seconds| StressLength::For(Duration::from_secs(seconds)))
    }
}

/// Counters of a stress run.
#[derive(Clone, Copy, Debug)]
pub struct StressCounts {
    /// Rounds, each with a new program.
    pub rounds: u64,
    /// Times the backend was opened.
    pub opened: u64,
    /// Programs compiled.
    pub compiled: u64,
    /// Dispatches run.
    pub dispatches: u64,
}

impl fmt::Display for StressCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StressCounts { rounds, opened, compiled, dispatches } = self;
        write!(
            f,
            "{THREADS} threads, {rounds} rounds: a new program each, compiled {compiled} times and run {dispatches} \
             times; the backend was opened {opened} times"
        )
    }
}

/// Runs the threads; the error is the first failed call or wrong result.
pub fn run(open: &Open, length: StressLength) -> Result<StressCounts, BackendError> {
    let stress = Stress {
        open,
        started: Instant::now(),
        length,
        barrier: Barrier::new(THREADS),
        over: AtomicBool::new(false),
        failure: Mutex::default(),
        shared: Mutex::default(),
        rounds: AtomicU64::new(0),
        opened: AtomicU64::new(0),
        compiled: AtomicU64::new(0),
        dispatches: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let stress = &stress;
            scope.spawn(move || stress.work(thread));
        }
    });
    let failure = stress.failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)?;
    Ok(StressCounts {
        rounds: stress.rounds.into_inner(),
        opened: stress.opened.into_inner(),
        compiled: stress.compiled.into_inner(),
        dispatches: stress.dispatches.into_inner(),
    })
}

struct Stress<'a> {
    open: &'a Open,
    started: Instant,
    length: StressLength,
    /// Synchronizes the threads before each round, and after the decision whether there is another.
    barrier: Barrier,
    over: AtomicBool,
    failure: Mutex<Option<BackendError>>,
    shared: Mutex<Option<(u64, Arc<dyn VyreBackend>)>>,
    rounds: AtomicU64,
    opened: AtomicU64,
    compiled: AtomicU64,
    dispatches: AtomicU64,
}

impl Stress<'_> {
    fn work(&self, thread: usize) {
        for round in 0.. {
            if self.barrier.wait().is_leader() {
                self.over.store(self.ends_before(round), Ordering::Relaxed);
                self.rounds.store(round, Ordering::Relaxed);
            }
            self.barrier.wait();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = self.round(thread, round) {
                let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
                failure.get_or_insert(error);
            }
        }
    }

    fn ends_before(&self, round: u64) -> bool {
        let failed = self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let enough = match self.length {
            StressLength::Rounds(rounds) => round >= rounds,
            StressLength::For(time) => self.started.elapsed() >= time,
        };
        failed || enough
    }

    fn round(&self, thread: usize, round: u64) -> Result<(), BackendError> {
        let backend = if thread.is_multiple_of(2) { self.shared(round)? } else { self.opened()? };
        let source = format!(
            "kernel stress(x: read u32[], y: output u32[]) workgroup 64 {{
               region \"r\" {{ let i = invocation.x
                 if x[i] != 7 {{ y[i] = x[i] * 2 + {round} }} }} }}"
        );
        let compiled = pipeline::compile(backend.clone(), &parse(&source)?, &DispatchConfig::default())?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        let early = thread % 4 < 2;
        let kept = if early { None } else { Some(backend) };
        for step in 0..2 * SIZES.len() {
            let config = DispatchConfig {
                // A second variant of the same program, compiled while the first is in use.
                workgroup_override: (step == SIZES.len() + thread % 2).then_some([32, 1, 1]),
                ..DispatchConfig::default()
            };
            self.dispatch(&*compiled, SIZES[(thread + step) % SIZES.len()], round as u32, &config)?;
        }
        drop(compiled);
        drop(kept);
        Ok(())
    }

    fn opened(&self) -> Result<Arc<dyn VyreBackend>, BackendError> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        (self.open)()
    }

    /// The instance that threads share in this round.
    fn shared(&self, round: u64) -> Result<Arc<dyn VyreBackend>, BackendError> {
        let turn = round / ROUNDS_PER_INSTANCE;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, backend)) = shared.as_ref().filter(|(of, _)| *of == turn) {
            return Ok(backend.clone());
        }
        let backend = self.opened()?;
        *shared = Some((turn, backend.clone()));
        Ok(backend)
    }

    fn dispatch(
        &self,
        pipeline: &dyn CompiledPipeline,
        size: usize,
        summand: u32,
        config: &DispatchConfig,
    ) -> Result<(), BackendError> {
        let input: Vec<u8> = (0..size as u32).flat_map(u32::to_le_bytes).collect();
        let result = |x: u32| if x == 7 { 0 } else { 2 * x + summand };
        let expected: Vec<u8> = (0..size as u32).flat_map(|x| result(x).to_le_bytes()).collect();
        let outputs = pipeline.dispatch_borrowed(&[&input], config)?;
        self.dispatches.fetch_add(1, Ordering::Relaxed);
        if outputs != [expected] {
            return Err(BackendError::new(format!("a dispatch of {size} elements gave a wrong result")));
        }
        Ok(())
    }
}
