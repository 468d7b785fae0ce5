//! A program loaded into a runtime: everything about it that calls need again and again, worked out once.

use crate::backend::Backend;
use crate::batch::Batch;
use crate::call::{Call, Handover};
use crate::explain::Explanation;
use crate::forms::Forms;
use crate::meter::Meters;
use crate::pending::{Completion, Pending};
use crate::rehearsal::Rehearsal;
use crate::report::Report;
use crate::runtime::Shared;
use crate::verify::Verifier;
use std::sync::{Arc, OnceLock};
use std::thread;
use vyre_driver::leaving::Inside;
use vyre_driver::router::ProgramRoutes;
use vyre_driver::{BackendError, Cached, CompiledPipeline, DispatchConfig, PipelineKey, contain, pipeline};
use vyre_foundation::ir::{Access, DataType, Name, Program};
use vyre_foundation::kernel::{Kernel, KernelDomain};

/// A program loaded into a [`Runtime`](crate::Runtime), ready to be called from any thread. Cheap to clone.
///
/// ```
/// use vyre::prelude::*;
/// # let runtime = Runtime::builder().without_tables().build()?;
/// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
/// let mut x = [1.0f32, 2.0, 3.0];
/// double.call().bind("x", &mut x).run()?;
/// assert_eq!(x, [2.0, 4.0, 6.0]);
/// # Ok::<(), BackendError>(())
/// ```
#[derive(Clone)]
pub struct Routine {
    pub(crate) core: Arc<RoutineCore>,
}

pub(crate) struct RoutineCore {
    pub(crate) shared: Arc<Shared>,
    pub(crate) program: Program,
    pub(crate) kernel: Kernel,
    /// The buffers that a call binds, in binding order.
    pub(crate) parameters: Vec<Parameter>,
    extent: Extent,
    /// Whether a call changes memory that it also reads.
    pub(crate) reads_and_writes: bool,
    /// What calls are laid over.
    pub(crate) config: DispatchConfig,
    pub(crate) routes: Arc<ProgramRoutes>,
    /// The routes of batches, once there is one.
    batch_routes: OnceLock<Arc<ProgramRoutes>>,
    pub(crate) forms: Forms,
    pub(crate) meters: Meters,
    pub(crate) verifier: Verifier,
}

/// A buffer that a call binds.
pub(crate) struct Parameter {
    pub(crate) name: Name,
    pub(crate) access: Access,
    pub(crate) element: DataType,
    pub(crate) size: usize,
    /// How many elements; 0 where the call decides.
    pub(crate) count: u32,
}

impl Parameter {
    /// Whether so many bytes can be bound to it.
    #[inline]
    pub(crate) fn is_length(&self, bytes: usize) -> bool {
        // The size of an element is a power of two.
        let (count, odd) = (bytes >> self.size.trailing_zeros(), bytes & (self.size - 1));
        odd == 0 && if self.count > 0 { count == self.count as usize } else { count <= u32::MAX as usize }
    }
}

/// How many elements a call is over.
enum Extent {
    Fixed(u64),
    /// As many as the buffer at this position among the parameters has.
    LengthOf(usize),
}

impl Routine {
    /// Starts a call. Bind every buffer by its name, then [`run`](Call::run).
    pub fn call(&self) -> Call<'_> {
        Call::new(&self.core)
    }

    /// Starts a batch of calls that run in one go.
    pub fn batch(&self) -> Batch<'_> {
        Batch::new(&self.core)
    }

    /// Runs a call on a thread of its own, with memory that is moved there and comes back with the outcome: for `async`
    /// code and whoever else cannot lend memory to a scope. `bind` binds the memory to the call and sets its options.
    ///
    /// ```
    /// use vyre::prelude::*;
    /// # let runtime = Runtime::builder().without_tables().build()?;
    /// let double = runtime.load("kernel double(x: read_write f32[]) { x[invocation.x] = 2.0 * x[invocation.x] }")?;
    /// async fn doubled(double: &Routine, x: Vec<f32>) -> Result<Vec<f32>, BackendError> {
    ///     let (x, report) = double.start_with(x, |call, x| call.bind("x", x)).await;
    ///     report?;
    ///     Ok(x)
    /// }
    /// # let (x, report) = double.start_with(vec![1.0f32; 3], |call, x| call.bind("x", x)).wait();
    /// # assert_eq!((x, report?.elements), (vec![2.0; 3], 3));
    /// # Ok::<(), BackendError>(())
    /// ```
    pub fn start_with<M, B>(&self, memory: M, bind: B) -> Pending<'static, (M, Result<Report, BackendError>)>
    where
        M: Send + 'static,
        B: for<'a> FnOnce(Call<'a>, &'a mut M) -> Call<'a> + Send + 'static,
    {
        let (pending, completion) = Pending::new();
        let work = Handover::new((self.clone(), memory, bind, completion));
        let taken = work.clone();
        let finish = |(routine, mut memory, bind, completion): (Routine, M, B, Completion<_>)| {
            let run = contain(|| bind(routine.call(), &mut memory).run());
            let outcome = run.unwrap_or_else(|message| Err(BackendError::new(message)));
            completion.complete((memory, outcome));
        };
        let started = thread::Builder::new().name("vyre-call".into()).spawn(move || {
            let _inside = Inside::enter();
            taken.run(finish);
        });
        if started.is_err() {
            work.run(finish);
        }
        pending
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.core.program
    }

    /// Why a call over so many elements, on memory of the caller's, would go where it would go.
    pub fn explain(&self, elements: u64) -> Explanation {
        let RoutineCore { shared, routes, forms, .. } = &*self.core;
        Explanation { code: forms.notes(), ..Explanation::new(shared, routes, elements) }
    }

    /// Generated memory to call the program on, run-time sized buffers of so many elements each.
    pub fn rehearse(&self, elements: u32) -> Rehearsal {
        Rehearsal::new(self.clone(), elements)
    }

    /// Compiles the program on every backend that may run it, so that no call has to. Gives what each backend said.
    pub fn prewarm(&self) -> Vec<(&'static str, Result<(), BackendError>)> {
        let core = &self.core;
        let compile = |backend: &Arc<Backend>| {
            (backend.id, core.pipeline(backend, &DispatchConfig::default()).map(|_| ()))
        };
        core.shared.backends.iter().map(compile).collect()
    }
}

impl std::fmt::Debug for Routine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Routine").field("op", &self.core.program.op_id().as_str()).finish_non_exhaustive()
    }
}

impl RoutineCore {
    pub(crate) fn new(
        shared: Arc<Shared>,
        program: Program,
        config: DispatchConfig,
    ) -> Result<RoutineCore, BackendError> {
        let kernel = program.validate()?;
        let bound = kernel.bound_buffers();
        let parameter = |&id: &_| {
            let decl = &kernel.buffer(id).decl;
            Parameter {
                name: decl.name.clone(),
                access: decl.access,
                element: decl.element,
                size: decl.element.size(),
                count: decl.count,
            }
        };
        let parameters: Vec<Parameter> = bound.iter().map(parameter).collect();
        let extent = match kernel.domain {
            KernelDomain::Counts(counts) => {
                Extent::Fixed(counts.into_iter().fold(1, |all: u64, axis| all.saturating_mul(axis.into())))
            }
            KernelDomain::LenOf(buffer) => match bound.iter().position(|&id| id == buffer) {
                Some(position) => Extent::LengthOf(position),
                None => unreachable!("validation lets a domain follow bound buffers only"),
            },
        };
        let name = program.name().map(|name| &**name);
        let routes = shared.router.program(name, program.fingerprint());
        Ok(RoutineCore {
            reads_and_writes: parameters.iter().any(|parameter| parameter.access == Access::ReadWrite),
            parameters,
            extent,
            config,
            routes,
            batch_routes: OnceLock::new(),
            forms: Forms::new(shared.backends.len()),
            meters: Meters::new(&kernel),
            verifier: Verifier::new(shared.backends.len()),
            kernel,
            program,
            shared,
        })
    }

    /// The routes of batches of this program, by the number of elements in all.
    pub(crate) fn batch_routes(&self) -> &ProgramRoutes {
        self.batch_routes.get_or_init(|| {
            let key = format!("{} in batches", self.routes.key());
            self.shared.router.program(Some(&key), self.program.fingerprint())
        })
    }

    /// The routes that what is found out of the program's results holds for.
    pub(crate) fn all_routes(&self) -> impl Iterator<Item = &ProgramRoutes> {
        std::iter::once(&*self.routes).chain(self.batch_routes.get().map(|routes| &**routes))
    }

    /// How many elements a call on memory of these lengths is over.
    #[inline]
    pub(crate) fn elements(&self, bytes_of: impl Fn(usize) -> usize, config: &DispatchConfig) -> u64 {
        if let Some(grid) = config.grid_override {
            let workgroup = config.workgroup_override.unwrap_or(self.kernel.workgroup_size);
            return grid.iter().chain(&workgroup).fold(1, |all: u64, &axis| all.saturating_mul(axis.into()));
        }
        match self.extent {
            Extent::Fixed(elements) => elements,
            Extent::LengthOf(position) => {
                // The size of an element is a power of two.
                let size = self.parameters.get(position).map_or(1, |parameter| parameter.size);
                (bytes_of(position) >> size.trailing_zeros()) as u64
            }
        }
    }

    /// The program compiled for a backend in this way, from the runtime's cache if it is there.
    pub(crate) fn compile(
        &self,
        backend: &Arc<Backend>,
        policy: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        self.compile_program(backend, &self.program, policy)
    }

    /// The same of a program that is to take this one's place.
    pub(crate) fn compile_program(
        &self,
        backend: &Arc<Backend>,
        program: &Program,
        policy: &DispatchConfig,
    ) -> Result<Arc<dyn CompiledPipeline>, BackendError> {
        backend.recover()?;
        let key = PipelineKey::new(backend.instance(), &backend.profile, program, policy);
        self.shared.pipelines.get_or_compile(&key, || {
            let made = contain(|| pipeline::compile(backend.driver(), program, policy));
            let pipeline = made.unwrap_or_else(|message| {
                Err(BackendError::KernelCompileFailed { backend: backend.id.into(), message })
            })?;
            // What code takes is the backend's secret; it grows with the kernel.
            Ok(Cached { pipeline, bytes: 4096 + 64 * self.kernel.values.len() as u64 })
        })
    }
}

/// Whether a call's configuration leaves the code as the routine's own has it.
pub(crate) fn changes_no_code(config: &DispatchConfig) -> bool {
    config.ulp_budget.is_none()
        && config.workgroup_override.is_none()
        && config.schedule.is_none()
        && config.elements_per_invocation.is_none()
        && config.subgroup_size.is_none()
        && config.native_math.is_none()
}

impl Drop for RoutineCore {
    fn drop(&mut self) {
        self.meters.drain(&self.shared.hints);
    }
}
