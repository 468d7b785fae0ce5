//! Backend-neutral machinery of vyre: no unsafe code, no device library, no built-in backend.
//!
//! [`VyreBackend`] is the interface of a device, [`CompiledPipeline`] a program compiled for it.
//! [`pipeline`] compiles programs, [`observability`] counts launches. [`pgo`] measures the fastest
//! backend for an op, [`tuner`] the fastest workgroup size, and [`router`] decides where each call
//! goes; their results are stored in [`tables`], as are the hints of [`hints_file`].

#![forbid(unsafe_code)]

mod admission;
mod backend;
pub mod binaries;
pub mod bundle;
mod cache;
pub mod certificates;
mod config;
mod containment;
mod dispatch;
mod error;
mod hex;
pub mod hints_file;
pub mod judge;
mod key;
pub mod messages;
pub mod native;
pub mod observability;
pub mod pgo;
pub mod pipeline;
pub mod process_exit;
mod profile;
pub mod registry;
pub mod router;
pub mod storage;
pub mod tables;
pub mod trace;
pub mod tuner;

pub use admission::check_shape;
pub use backend::{VyreBackend, default_supported_ops};
pub use cache::{CacheLimits, CacheStatistics, Cached, PipelineCache, PipelineKey, next_backend_instance};
pub use config::{Cancellation, DispatchConfig, Fallback, Schedule};
pub use containment::{Unfinished, contain, contain_call, open_all, within};
pub use dispatch::{
    Binding, CompiledPipeline, Failed, OutputBuffers, Resource, SequenceStep, TimedOutputs, copy_out,
    write_slots,
};
pub use error::{BackendError, ERROR_KINDS, ErrorKind};
pub use inventory;
pub use key::{CodeKey, DeviceKey};
pub use profile::{DeviceClass, DeviceProfile, DeviceTimingQuality, FloatDepartures};
