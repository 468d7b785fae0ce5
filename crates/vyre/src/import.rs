//! Shaders as routines.

use crate::{BackendError, Routine, Runtime};
use vyre_import::{Options, Source};

impl Runtime {
    /// Loads a compute entry point of a WGSL shader; `None` selects the only one. Buffers are bound
    /// by their names in the shader. `docs/import.md` describes what is supported and what differs
    /// from drivers.
    ///
    /// ```
    /// use vyre::Runtime;
    /// # let runtime = Runtime::builder().without_tables().build()?;
    /// let shader = "
    ///     @group(0) @binding(0) var<storage, read_write> x: array<f32>;
    ///     @compute @workgroup_size(64) fn double(@builtin(global_invocation_id) id: vec3<u32>) {
    ///         if (id.x < arrayLength(&x)) { x[id.x] = 2.0 * x[id.x]; }
    ///     }";
    /// let double = runtime.load_wgsl(shader, "double")?;
    /// let mut x = [1.0_f32, 2.0, 3.0];
    /// double.call().bind("x", &mut x).run()?;
    /// assert_eq!(x, [2.0, 4.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn load_wgsl<'a>(
        &self,
        source: &str,
        entry: impl Into<Option<&'a str>>,
    ) -> Result<Routine, BackendError> {
        self.load_shader(Source::Wgsl(source), &options(entry))
    }

    /// Loads a compute entry point of a SPIR-V module; `None` selects the only one.
    pub fn load_spirv<'a>(
        &self,
        words: &[u32],
        entry: impl Into<Option<&'a str>>,
    ) -> Result<Routine, BackendError> {
        self.load_shader(Source::Spirv(words), &options(entry))
    }

    /// Loads a GLSL compute shader.
    pub fn load_glsl(&self, source: &str) -> Result<Routine, BackendError> {
        self.load_shader(Source::Glsl(source), &Options::default())
    }

    /// Loads a shader, with values for its overrides or specialisation constants.
    pub fn load_shader(&self, source: Source<'_>, options: &Options) -> Result<Routine, BackendError> {
        self.load(vyre_import::import(source, options)?.program)
    }
}

fn options<'a>(entry: impl Into<Option<&'a str>>) -> Options {
    Options { entry: entry.into().map(str::to_string), ..Options::default() }
}
