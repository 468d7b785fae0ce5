//! The size of a dispatch: buffer lengths, grid and domain, computed once from the kernel and the
//! caller's arguments.
//!
//! Lengths come first: those of inputs as passed, those of outputs from a count, a formula,
//! `len_of` or the longest input. The domain follows, which can be a formula over lengths and
//! single-value uniforms, then the grid that covers it.

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::ir::{Access, Builtin};
use crate::kernel::interval::Interval;
use crate::kernel::known::Lookup;
use crate::kernel::proof::LaunchFacts;
use crate::kernel::{BufferId, Doubts, KernelBody, KernelDomain, Known, Proof};
#[cfg(feature = "compiler")]
use crate::optimize::dispatch_iteration_bound;
use crate::types::Value;
use smallvec::SmallVec;

/// The parts of a kernel's shape that a dispatch can override.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// The workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// The number of workgroups, instead of a grid that covers the domain.
    pub grid: Option<[u32; 3]>,
    /// The number of invocations, instead of the program's domain; a grid takes precedence.
    pub domain: Option<[u32; 3]>,
}

/// An argument for a buffer, as the size of a launch depends on it: its length in bytes, and its
/// contents if the host can read them.
///
/// A kernel whose domain or lengths depend on uniforms needs the contents of those.
#[derive(Clone, Copy, Debug)]
pub struct LaunchArgument<'a> {
    /// The length in bytes.
    pub length: usize,
    /// The contents, if the host can read them.
    pub contents: Option<&'a [u8]>,
}

impl From<usize> for LaunchArgument<'_> {
    fn from(length: usize) -> Self {
        LaunchArgument { length, contents: None }
    }
}

impl<'a> From<&'a [u8]> for LaunchArgument<'a> {
    fn from(contents: &'a [u8]) -> Self {
        LaunchArgument { length: contents.len(), contents: Some(contents) }
    }
}

/// The size of one dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// The length of every buffer in elements, in declaration order, including workgroup memory.
    pub lengths: Vec<u32>,
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups per axis.
    pub grid: [u32; 3],
    /// The domain before coarsening divides its first axis; `None` if a grid overrides it.
    pub domain: Option<[u32; 3]>,
    /// The invocations that run: those of a shape-free kernel outside this box do not. `None` if
    /// the whole grid runs.
    pub limit: Option<[u32; 3]>,
    /// The number of elements on the domain's first axis that one invocation handles.
    pub coarsening: u32,
}

impl Launch {
    /// Computes the launch of `kernel` for these inputs, or for inputs of these lengths in bytes:
    /// one per read, uniform and read_write buffer, in binding order.
    pub fn from_inputs<'a, A: Into<LaunchArgument<'a>> + Copy>(
        kernel: &KernelBody,
        inputs: &[A],
        overrides: Overrides,
    ) -> Result<Launch, Diagnostics> {
        let wanted: Vec<BufferId> = kernel
            .bound_buffers()
            .into_iter()
            .filter(|&id| kernel.buffer(id).decl.access.is_input())
            .collect();
        let mut launch = Launch::default();
        Sizing::new(kernel, &wanted, inputs)?.finish(overrides, &mut launch)?;
        Ok(launch)
    }

    /// Computes the launch of `kernel` for this bound memory, or for memory of these lengths in
    /// bytes: one per buffer except workgroup memory, in binding order. Outputs have the lengths of
    /// their arguments.
    pub fn from_bound<'a, A: Into<LaunchArgument<'a>> + Copy>(
        kernel: &KernelBody,
        bound: &[A],
        overrides: Overrides,
    ) -> Result<Launch, Diagnostics> {
        let mut launch = Launch::default();
        launch.fit_bound(kernel, &kernel.bound_buffers(), bound, overrides)?;
        Ok(launch)
    }

    /// Recomputes this launch as [`from_bound`](Self::from_bound) would, reusing its memory;
    /// `bound` is the kernel's [`bound_buffers`](KernelBody::bound_buffers). After an error its
    /// contents are unspecified.
    pub fn fit_bound<'a, A: Into<LaunchArgument<'a>> + Copy>(
        &mut self,
        kernel: &KernelBody,
        bound: &[BufferId],
        arguments: &[A],
        overrides: Overrides,
    ) -> Result<(), Diagnostics> {
        Sizing::new(kernel, bound, arguments)?.finish(overrides, self)
    }

    /// The number of invocations in the whole grid.
    pub fn invocations(&self) -> u64 {
        let axis = |k: usize| u64::from(self.grid[k]) * u64::from(self.workgroup[k]);
        axis(0).saturating_mul(axis(1)).saturating_mul(axis(2))
    }

    /// The accesses that a kernel's proof does not show to be in range for this dispatch. `element`
    /// returns an element of a `read` or `uniform` buffer, zero if out of range, or `None` if its
    /// memory cannot be read.
    pub fn doubts(&self, proof: &Proof, element: &mut dyn FnMut(BufferId, u32) -> Option<Value>) -> Doubts {
        proof.fails(&mut LaunchFacts { launch: self, element })
    }

    /// The values of a builtin over all invocations that run.
    pub(crate) fn place(&self, builtin: Builtin, axis: usize) -> Interval {
        let (grid, workgroup) = (i128::from(self.grid[axis]), i128::from(self.workgroup[axis]));
        match builtin {
            Builtin::InvocationId => {
                Interval::first(self.limit.map_or(grid * workgroup, |limit| i128::from(limit[axis])))
            }
            Builtin::WorkgroupId => Interval::first(grid),
            Builtin::LocalId => Interval::first(workgroup),
            Builtin::GridSize => Interval::only(grid),
            Builtin::WorkgroupSize => Interval::only(workgroup),
        }
    }

    /// Like [`iteration_bound`](crate::optimize::iteration_bound), using the facts about this
    /// dispatch. `element` is as for [`doubts`](Self::doubts).
    #[cfg(feature = "compiler")]
    pub fn iteration_bound(
        &self,
        kernel: &KernelBody,
        element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
    ) -> Option<u64> {
        dispatch_iteration_bound(kernel, self, element)
    }

    /// The number of invocations in a kernel's domain for bound memory, without the rest of a
    /// launch; `None` if the host cannot read what it depends on. `memory` returns the memory bound
    /// to a buffer.
    pub fn domain_on<'a>(
        kernel: &KernelBody,
        overrides: Overrides,
        memory: &dyn Fn(BufferId) -> LaunchArgument<'a>,
    ) -> Option<u64> {
        let mut domain = overrides.domain.unwrap_or([0; 3]);
        if overrides.domain.is_none() {
            let mut bound = BoundSizes { kernel, memory };
            for (axis, count) in domain.iter_mut().enumerate() {
                *count = kernel.domain.axis(axis)?.evaluate(&mut bound)?.as_u32()?;
            }
        }
        Some(domain.into_iter().fold(1, |all: u64, axis| all.saturating_mul(axis.into())))
    }

    /// The size of a buffer in bytes.
    pub fn bytes(&self, kernel: &KernelBody, id: BufferId) -> usize {
        self.lengths[id.index()] as usize * kernel.buffer(id).decl.element.size()
    }
}

/// Bound memory as a source of sizes.
struct BoundSizes<'k, 'a> {
    kernel: &'k KernelBody,
    memory: &'k dyn Fn(BufferId) -> LaunchArgument<'a>,
}

impl Lookup for BoundSizes<'_, '_> {
    fn length(&mut self, buffer: BufferId) -> Option<u32> {
        let length = (self.memory)(buffer).length / self.kernel.buffer(buffer).decl.element.size();
        u32::try_from(length).ok()
    }

    fn element(&mut self, buffer: BufferId, index: u32) -> Option<Value> {
        element_at(self.kernel, buffer, (self.memory)(buffer).contents?, index)
    }

    fn groups(&mut self, _axis: u8) -> Option<u32> {
        None
    }
}

/// An element of a buffer with these contents; zero if out of range.
fn element_at(kernel: &KernelBody, buffer: BufferId, bytes: &[u8], index: u32) -> Option<Value> {
    let element = kernel.buffer(buffer).decl.element;
    let at = (index as usize).checked_mul(element.size())?;
    let inside = bytes.get(at..).and_then(|rest| rest.get(..element.size()));
    inside.map_or(Some(Value::zero(element.value_type())), |bytes| element.load(bytes))
}

/// The lengths found so far; `None` for those not yet derived.
struct Sizing<'k, 'a> {
    kernel: &'k KernelBody,
    lengths: SmallVec<[Option<u32>; 8]>,
    /// The readable contents of read-only buffers; empty if no size depends on them.
    contents: Vec<(BufferId, &'a [u8])>,
    faults: Vec<Diagnostic>,
}

impl Lookup for Sizing<'_, '_> {
    fn length(&mut self, buffer: BufferId) -> Option<u32> {
        self.lengths[buffer.index()]
    }

    fn element(&mut self, buffer: BufferId, index: u32) -> Option<Value> {
        let (_, bytes) = self.contents.iter().find(|(id, _)| *id == buffer)?;
        element_at(self.kernel, buffer, bytes, index)
    }

    /// The inputs to the grid cannot depend on the grid.
    fn groups(&mut self, _axis: u8) -> Option<u32> {
        None
    }
}

impl<'k, 'a> Sizing<'k, 'a> {
    fn new<A: Into<LaunchArgument<'a>> + Copy>(
        kernel: &'k KernelBody,
        given: &[BufferId],
        arguments: &[A],
    ) -> Result<Sizing<'k, 'a>, Diagnostics> {
        if given.len() != arguments.len() {
            let names: Vec<&str> = given.iter().map(|&id| &*kernel.buffer(id).decl.name).collect();
            return Err(Diagnostics::new(vec![input_count(kernel, &names, arguments.len())], None));
        }
        let fixed =
            |buffer: &crate::kernel::KernelBuffer| (buffer.decl.count > 0).then_some(buffer.decl.count);
        let lengths = kernel.buffers.iter().map(fixed).collect();
        let mut sizing = Sizing { kernel, lengths, contents: Vec::new(), faults: Vec::new() };
        for (&id, &argument) in given.iter().zip(arguments) {
            let argument: LaunchArgument<'a> = argument.into();
            sizing.take(id, argument.length);
            if let Some(contents) = argument.contents.filter(|_| kernel.sized_by_elements) {
                sizing.contents.push((id, contents));
            }
        }
        Ok(sizing)
    }

    fn take(&mut self, id: BufferId, bytes: usize) {
        let decl = &self.kernel.buffer(id).decl;
        let elements = bytes / decl.element.size();
        if !bytes.is_multiple_of(decl.element.size()) || (decl.count > 0 && elements != decl.count as usize) {
            self.faults.push(input_length(decl, bytes));
        } else if let Ok(elements) = u32::try_from(elements) {
            self.lengths[id.index()] = Some(elements);
        } else {
            self.faults.push(too_many_elements(&decl.name, elements));
        }
    }

    fn finish(mut self, overrides: Overrides, launch: &mut Launch) -> Result<(), Diagnostics> {
        if self.faults.is_empty() {
            self.derive_outputs();
        }
        if self.faults.is_empty() {
            self.shape(overrides, launch);
        }
        if self.faults.is_empty() { Ok(()) } else { Err(Diagnostics::new(self.faults, None)) }
    }

    fn derive_outputs(&mut self) {
        let runtime_input = |id: usize| {
            let decl = &self.kernel.buffers[id].decl;
            decl.count == 0 && decl.access.is_input() && decl.access != Access::Uniform
        };
        let longest =
            (0..self.lengths.len()).filter(|&id| runtime_input(id)).filter_map(|id| self.lengths[id]).max();
        let kernel = self.kernel;
        // Chains of derived lengths are acyclic (validated), so one round per buffer resolves them
        // all.
        for _ in 0..self.lengths.len() {
            for id in 0..self.lengths.len() {
                if self.lengths[id].is_none() {
                    let buffer = &kernel.buffers[id];
                    self.lengths[id] = match (&buffer.length, buffer.len_of) {
                        (Some(length), _) => self.size(length),
                        (None, Some(other)) => self.lengths[other.index()],
                        (None, None) => longest,
                    };
                }
            }
            if self.lengths.iter().all(Option::is_some) {
                return;
            }
        }
        for (buffer, length) in kernel.buffers.iter().zip(&self.lengths) {
            match (length, &buffer.length) {
                (Some(_), _) => {}
                (None, None) => self.faults.push(output_length(&buffer.decl.name)),
                (None, Some(length)) => {
                    let what = format!("the length of buffer `{}`", buffer.decl.name);
                    self.faults.push(unread_size(kernel, &what, length));
                }
            }
        }
    }

    /// The value of a formula, if everything that it depends on is known.
    fn size(&mut self, formula: &Known) -> Option<u32> {
        formula.evaluate(self)?.as_u32()
    }

    /// The domain: the caller's override, or the program's.
    fn domain(&mut self, overrides: Overrides) -> Option<[u32; 3]> {
        if let Some(domain) = overrides.domain {
            return Some(domain);
        }
        let kernel = self.kernel;
        match &kernel.domain {
            KernelDomain::Counts(counts) => Some(*counts),
            KernelDomain::LenOf(id) => Some([self.lengths[id.index()].unwrap_or(0), 1, 1]),
            KernelDomain::Axes(axes) => {
                let mut domain = [0; 3];
                for (count, axis) in domain.iter_mut().zip(axes) {
                    let Some(size) = self.size(axis) else {
                        self.faults.push(unread_size(kernel, "the domain", axis));
                        return None;
                    };
                    *count = size;
                }
                Some(domain)
            }
            KernelDomain::Given => {
                self.faults.push(grid_size("the kernel needs a domain with each dispatch".into()));
                None
            }
        }
    }

    fn shape(&mut self, overrides: Overrides, launch: &mut Launch) {
        launch.lengths.clear();
        launch.lengths.extend(self.lengths.iter().map(|length| length.unwrap_or(0)));
        let workgroup = overrides.workgroup.unwrap_or(self.kernel.workgroup_size);
        if workgroup.contains(&0)
            || workgroup.iter().map(|&n| u128::from(n)).product::<u128>() > i32::MAX as u128
        {
            self.faults.push(grid_size(format!("workgroup size {workgroup:?} is not possible")));
            return;
        }
        // A grid overrides the domain, which then need not be computed.
        let domain = if overrides.grid.is_some() { Some([0; 3]) } else { self.domain(overrides) };
        let Some(mut domain) = domain else { return };
        launch.domain = overrides.grid.is_none().then_some(domain);
        domain[0] = domain[0].div_ceil(self.kernel.coarsening);
        if self.kernel.coarsening > 1 && overrides.grid.is_some() {
            let elements = self.kernel.coarsening;
            self.faults.push(grid_size(format!(
                "the grid cannot be overridden: each invocation of the kernel handles {elements} elements"
            )));
            return;
        }
        let covering = || std::array::from_fn(|k| domain[k].div_ceil(workgroup[k]));
        let grid: [u32; 3] = overrides.grid.unwrap_or_else(covering);
        let axis_fits = |k: usize| u64::from(grid[k]) * u64::from(workgroup[k]) <= 1 << 32;
        if !(0..3).all(axis_fits) {
            let text =
                format!("grid {grid:?} of workgroups {workgroup:?} has an axis above 2^32 invocations");
            self.faults.push(grid_size(text));
            return;
        }
        launch.limit = (self.kernel.shape_free && overrides.grid.is_none()).then_some(domain);
        (launch.workgroup, launch.grid, launch.coarsening) = (workgroup, grid, self.kernel.coarsening);
    }
}

fn input_count(kernel: &KernelBody, names: &[&str], given: usize) -> Diagnostic {
    let (kernel, wanted) = (kernel.display_name(), names.len());
    Diagnostic::new(Code::InputCount, format!("kernel `{kernel}` takes {wanted} inputs, {given} were given"))
        .help(format!("give one for each of: {}", names.join(", ")))
}

fn input_length(decl: &crate::ir::BufferDecl, bytes: usize) -> Diagnostic {
    let (name, element, size) = (&decl.name, decl.element, decl.element.size());
    let fault = Diagnostic::new(Code::InputLength, format!("buffer `{name}` was given {bytes} bytes"));
    if decl.count > 0 {
        let exact = decl.count as u64 * size as u64;
        fault.help(format!("give exactly {exact} bytes: {} elements of {element}", decl.count))
    } else {
        fault.help(format!("give a multiple of {size} bytes: elements of {element}"))
    }
}

fn too_many_elements(name: &str, elements: usize) -> Diagnostic {
    Diagnostic::new(Code::TooManyElements, format!("buffer `{name}` was given {elements} elements"))
        .help("split the work: a buffer has fewer than 2^32 elements")
}

fn output_length(name: &str) -> Diagnostic {
    Diagnostic::new(Code::OutputLength, format!("the length of buffer `{name}` is not known"))
        .help("declare a count, or the buffer whose length it takes")
}

/// The error for a size that depends on memory that the host cannot read.
fn unread_size(kernel: &KernelBody, what: &str, formula: &Known) -> Diagnostic {
    let mut buffers = Vec::new();
    formula.elements(&mut buffers);
    let names: Vec<String> = buffers.iter().map(|&id| format!("`{}`", kernel.buffer(id).decl.name)).collect();
    let names = names.join(", ");
    Diagnostic::new(Code::SizeUnknown, format!("{what} depends on {names}, which the host cannot read"))
        .help(format!("give {names} as a number or in memory of the host, or give the dispatch a domain"))
}

fn grid_size(message: String) -> Diagnostic {
    Diagnostic::new(Code::GridSize, message).help("choose another workgroup size or grid")
}
