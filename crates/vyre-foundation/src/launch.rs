//! How large a dispatch is: buffer lengths, grid and domain, worked out once from the kernel and the caller's bytes.

use crate::diagnostics::{Code, Diagnostic, Diagnostics};
use crate::ir::Access;
use crate::kernel::requirement::Facts;
use crate::kernel::{BufferId, KernelBody, KernelDomain, Requirement};
use crate::optimize::dispatch_iteration_bound;
use crate::types::Value;
use smallvec::SmallVec;

/// What a dispatch may change about a kernel's shape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Another workgroup size.
    pub workgroup: Option<[u32; 3]>,
    /// So many workgroups, instead of covering the domain.
    pub grid: Option<[u32; 3]>,
}

/// The size of one dispatch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Elements of every buffer, in declaration order, workgroup memory included.
    pub lengths: Vec<u32>,
    /// Invocations per workgroup.
    pub workgroup: [u32; 3],
    /// Workgroups.
    pub grid: [u32; 3],
    /// Invocations that run: those of a shape-free kernel outside this box do not. `None`: all of the grid run.
    pub limit: Option<[u32; 3]>,
    /// How many elements of the domain's first axis one invocation handles.
    pub coarsening: u32,
}

impl Launch {
    /// The launch of `kernel` on inputs of these lengths in bytes: one per read, uniform and read_write buffer, in
    /// binding order.
    pub fn from_inputs(
        kernel: &KernelBody,
        input_bytes: &[usize],
        overrides: Overrides,
    ) -> Result<Launch, Diagnostics> {
        let wanted: Vec<BufferId> = kernel
            .bound_buffers()
            .into_iter()
            .filter(|&id| kernel.buffer(id).decl.access.is_input())
            .collect();
        let mut launch = Launch::default();
        Sizing::new(kernel, &wanted, input_bytes)?.finish(overrides, &mut launch)?;
        Ok(launch)
    }

    /// The launch of `kernel` on bound memory of these lengths in bytes: one per buffer that is not workgroup memory,
    /// in binding order. Outputs have the lengths given.
    pub fn from_bound(
        kernel: &KernelBody,
        bound_bytes: &[usize],
        overrides: Overrides,
    ) -> Result<Launch, Diagnostics> {
        let mut launch = Launch::default();
        launch.fit_bound(kernel, &kernel.bound_buffers(), bound_bytes, overrides)?;
        Ok(launch)
    }

    /// Makes this the launch that [`from_bound`](Self::from_bound) gives, in the memory that it has; `bound` are the
    /// kernel's [`bound_buffers`](KernelBody::bound_buffers). After an error its contents are unspecified.
    pub fn fit_bound(
        &mut self,
        kernel: &KernelBody,
        bound: &[BufferId],
        bound_bytes: &[usize],
        overrides: Overrides,
    ) -> Result<(), Diagnostics> {
        Sizing::new(kernel, bound, bound_bytes)?.finish(overrides, self)
    }

    /// How many invocations the whole grid has.
    pub fn invocations(&self) -> u64 {
        let axis = |k: usize| u64::from(self.grid[k]) * u64::from(self.workgroup[k]);
        axis(0).saturating_mul(axis(1)).saturating_mul(axis(2))
    }

    /// Whether the dispatch meets the requirements of a kernel. `element` gives an element of a `read` or `uniform` buffer,
    /// zero out of range, or `None` where its memory cannot be read.
    pub fn satisfies(
        &self,
        requires: &[Requirement],
        element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
    ) -> bool {
        let mut facts = Facts { launch: self, element };
        requires.iter().all(|requirement| requirement.holds(&mut facts))
    }

    /// As [`iteration_bound`](crate::optimize::iteration_bound), with what is known of this dispatch. `element` is as with
    /// [`satisfies`](Self::satisfies).
    pub fn iteration_bound(
        &self,
        kernel: &KernelBody,
        element: &mut dyn FnMut(BufferId, u32) -> Option<Value>,
    ) -> Option<u64> {
        dispatch_iteration_bound(kernel, self, element)
    }

    /// Bytes of the buffer at this position in the declarations.
    pub fn bytes(&self, kernel: &KernelBody, id: BufferId) -> usize {
        self.lengths[id.index()] as usize * kernel.buffer(id).decl.element.size()
    }
}

/// Lengths found so far; `None` where a length is still to be derived.
struct Sizing<'a> {
    kernel: &'a KernelBody,
    lengths: SmallVec<[Option<u32>; 8]>,
    faults: Vec<Diagnostic>,
}

impl<'a> Sizing<'a> {
    fn new(kernel: &'a KernelBody, given: &[BufferId], bytes: &[usize]) -> Result<Sizing<'a>, Diagnostics> {
        if given.len() != bytes.len() {
            let names: Vec<&str> = given.iter().map(|&id| &*kernel.buffer(id).decl.name).collect();
            return Err(Diagnostics::new(vec![input_count(kernel, &names, bytes.len())], None));
        }
        let fixed =
            |buffer: &crate::kernel::KernelBuffer| (buffer.decl.count > 0).then_some(buffer.decl.count);
        let lengths = kernel.buffers.iter().map(fixed).collect();
        let mut sizing = Sizing { kernel, lengths, faults: Vec::new() };
        for (&id, &bytes) in given.iter().zip(bytes) {
            sizing.take(id, bytes);
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
        // A chain of borrowed lengths is acyclic (validated), so as many rounds as buffers settle it.
        for _ in 0..self.lengths.len() {
            for id in 0..self.lengths.len() {
                if self.lengths[id].is_none() {
                    self.lengths[id] = match self.kernel.buffers[id].len_of {
                        Some(other) => self.lengths[other.index()],
                        None => longest,
                    };
                }
            }
        }
        for (buffer, length) in self.kernel.buffers.iter().zip(&self.lengths) {
            if length.is_none() {
                self.faults.push(output_length(&buffer.decl.name));
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
        let mut domain = match self.kernel.domain {
            KernelDomain::Counts(counts) => counts,
            KernelDomain::LenOf(id) => [launch.lengths[id.index()], 1, 1],
        };
        domain[0] = domain[0].div_ceil(self.kernel.coarsening);
        if self.kernel.coarsening > 1 && overrides.grid.is_some() {
            let elements = self.kernel.coarsening;
            self.faults.push(grid_size(format!(
                "a grid is given to a kernel whose invocations handle {elements} elements each"
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
    Diagnostic::new(Code::OutputLength, format!("nothing tells how long buffer `{name}` is"))
        .help("declare a count, or the buffer whose length it takes")
}

fn grid_size(message: String) -> Diagnostic {
    Diagnostic::new(Code::GridSize, message).help("choose another workgroup size or grid")
}
