//! A backend that is the interpreter until it is told to misbehave.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre::driver::{BackendError, DeviceProfile, DispatchConfig, VyreBackend};
use vyre::foundation::ir::Program;

/// How a planted backend behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    Fails,
    Hangs,
    Panics,
    LosesDevice,
    Lies,
    /// Lies about the program of that name only.
    LiesFor(&'static str),
}

/// A handle on a planted backend; the runtime holds another.
#[derive(Clone)]
pub(crate) struct Planted(Arc<State>);

struct State {
    id: &'static str,
    capable: bool,
    mood: Mutex<Mood>,
    /// How often it does all the work: how slow it is.
    rounds: AtomicU32,
}

impl Planted {
    pub(crate) fn new(id: &'static str, mood: Mood) -> Planted {
        Planted(Arc::new(State { id, capable: false, mood: Mutex::new(mood), rounds: AtomicU32::new(1) }))
    }

    /// Selected before those without.
    pub(crate) fn with_capability(self) -> Planted {
        let State { id, .. } = *self.0;
        Planted(Arc::new(State {
            id,
            capable: true,
            mood: Mutex::new(self.mood()),
            rounds: AtomicU32::new(1),
        }))
    }

    pub(crate) fn with_rounds(self, rounds: u32) -> Planted {
        self.set_rounds(rounds);
        self
    }

    pub(crate) fn set_rounds(&self, rounds: u32) {
        self.0.rounds.store(rounds, Relaxed);
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.0.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    pub(crate) fn shared(&self) -> Arc<dyn VyreBackend> {
        Arc::new(self.clone())
    }

    fn mood(&self) -> Mood {
        *self.0.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl VyreBackend for Planted {
    fn id(&self) -> &'static str {
        self.0.id
    }

    fn device_profile(&self) -> DeviceProfile {
        let max_storage_buffer_binding_size = if self.0.capable { 1 << 40 } else { 0 };
        DeviceProfile {
            max_storage_buffer_binding_size,
            strict_float: true,
            ..DeviceProfile::conservative(self.0.id)
        }
    }

    fn dispatch(
        &self,
        program: &Program,
        inputs: &[Vec<u8>],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let borrowed: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        self.dispatch_borrowed(program, &borrowed, config)
    }

    fn dispatch_borrowed(
        &self,
        program: &Program,
        inputs: &[&[u8]],
        config: &DispatchConfig,
    ) -> Result<Vec<Vec<u8>>, BackendError> {
        let backend = || self.0.id.to_owned();
        let mood = self.mood();
        match mood {
            Mood::Fails => {
                return Err(BackendError::DispatchFailed { backend: backend(), message: "as told".into() });
            }
            Mood::Panics => panic!("as told"),
            Mood::LosesDevice => {
                return Err(BackendError::DeviceLost { backend: backend(), message: "as told".into() });
            }
            Mood::Hangs => {
                let limit = config.timeout.unwrap_or(Duration::from_secs(60));
                let began = Instant::now();
                while began.elapsed() < limit {
                    std::thread::yield_now();
                }
                return Err(BackendError::Timeout { backend: backend(), limit });
            }
            Mood::Fine | Mood::Lies | Mood::LiesFor(_) => {}
        }
        let config = DispatchConfig { timeout: None, ..config.clone() };
        let mut outputs = Vec::new();
        for _ in 0..self.0.rounds.load(Relaxed) {
            outputs =
                vyre::driver::registry::acquire("cpu-ref")?.dispatch_borrowed(program, inputs, &config)?;
        }
        let lies = match mood {
            Mood::Lies => true,
            Mood::LiesFor(name) => program.name().is_some_and(|own| **own == *name),
            Mood::Fine | Mood::Fails | Mood::Hangs | Mood::Panics | Mood::LosesDevice => false,
        };
        if lies && let Some(byte) = outputs.iter_mut().flatten().next() {
            *byte ^= 0x55;
        }
        Ok(outputs)
    }
}
