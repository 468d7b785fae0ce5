//! A backend that is the interpreter until told to misbehave.

// Not every test uses every kind.
#![allow(dead_code)]

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vyre::ir::{DataType, Program};
use vyre_driver::{BackendError, DeviceProfile, DispatchConfig, FloatDepartures, VyreBackend};

/// Behaviour of a planted backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Fine,
    Fails,
    Hangs,
    /// Hangs on inputs with fewer bytes than this.
    HangsBelow(usize),
    Panics,
    LosesDevice,
    Lies,
    /// Does nothing and reports success.
    Idles,
    /// Returns wrong results only for the program with this name.
    LiesFor(&'static str),
}

/// A handle to a planted backend; the runtime holds another.
#[derive(Clone)]
pub(crate) struct Planted(Arc<State>);

struct State {
    id: &'static str,
    capable: bool,
    mood: Mutex<Mood>,
    /// How often it repeats the work, which makes it slow.
    rounds: AtomicU32,
    /// Whether its profile allows contraction of floats.
    contracts: bool,
}

impl Planted {
    pub(crate) fn new(id: &'static str, mood: Mood) -> Planted {
        let (mood, rounds) = (Mutex::new(mood), AtomicU32::new(1));
        Planted(Arc::new(State { id, capable: false, mood, rounds, contracts: false }))
    }

    /// A backend whose device is allowed to be off by a unit in the last place, and is.
    pub(crate) fn contracting(id: &'static str) -> Planted {
        let (mood, rounds) = (Mutex::new(Mood::Fine), AtomicU32::new(1));
        Planted(Arc::new(State { id, capable: false, mood, rounds, contracts: true }))
    }

    /// Makes it selected before backends without the capability.
    pub(crate) fn with_capability(self) -> Planted {
        let State { id, contracts, .. } = *self.0;
        let (mood, rounds) = (Mutex::new(self.mood()), AtomicU32::new(1));
        Planted(Arc::new(State { id, capable: true, mood, rounds, contracts }))
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
            strict_float: !self.0.contracts,
            float_departures: FloatDepartures { contracts: self.0.contracts, ..FloatDepartures::default() },
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
            Mood::HangsBelow(bytes) if inputs.first().is_none_or(|input| input.len() >= bytes) => {}
            Mood::Hangs | Mood::HangsBelow(_) => {
                let limit = config.timeout.unwrap_or(Duration::from_secs(60));
                let began = Instant::now();
                while began.elapsed() < limit {
                    std::thread::yield_now();
                }
                return Err(BackendError::Timeout { backend: backend(), limit });
            }
            Mood::Fine | Mood::Lies | Mood::Idles | Mood::LiesFor(_) => {}
        }
        let config = DispatchConfig { timeout: None, ..config.clone() };
        let mut outputs = Vec::new();
        for _ in 0..self.0.rounds.load(Relaxed) {
            outputs =
                vyre_driver::registry::acquire("cpu-ref")?.dispatch_borrowed(program, inputs, &config)?;
        }
        let lies = match mood {
            Mood::Lies => true,
            Mood::LiesFor(name) => program.name().is_some_and(|own| **own == *name),
            Mood::Fine
            | Mood::Idles
            | Mood::Fails
            | Mood::Hangs
            | Mood::HangsBelow(_)
            | Mood::Panics
            | Mood::LosesDevice => false,
        };
        if mood == Mood::Idles {
            // Outputs stay zeroed, and read_write buffers stay as given.
            let given = program.buffers().iter().filter(|decl| decl.access.is_input());
            let mut inputs: Vec<_> = given.zip(inputs).collect();
            inputs.retain(|(decl, _)| decl.access.is_output());
            let mut kept = inputs.into_iter().map(|(_, bytes)| bytes.to_vec());
            let written = program.buffers().iter().filter(|decl| decl.access.is_output());
            for (decl, output) in written.zip(&mut outputs) {
                *output = if decl.access.is_input() {
                    kept.next().unwrap_or_default()
                } else {
                    vec![0; output.len()]
                };
            }
        }
        if self.0.contracts {
            // One unit in the last place, the possible difference when a product and a sum are
            // rounded once.
            for (decl, output) in program.buffers().iter().filter(|d| d.access.is_output()).zip(&mut outputs)
            {
                if decl.element == DataType::F32 {
                    output
                        .chunks_exact_mut(4)
                        .for_each(|bits| bits[0] ^= u8::from(bits != [0; 4] && bits[3] & 0x7F != 0x7F));
                }
            }
        }
        if lies && let Some(byte) = outputs.iter_mut().flatten().next() {
            *byte ^= 0x55;
        }
        Ok(outputs)
    }
}
