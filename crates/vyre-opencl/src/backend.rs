//! The `opencl` backend and its registration.

use crate::compiled::{Compiled, build_form, form_of};
use crate::device::{BACKEND_ID, devices};
use crate::opencl_device::OpenClDevice;
use crate::resident::{Residence, Resident};
use crate::run::{run, run_all};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;
use vyre_driver::native::{Built, Failed, Form, Job, Native, NativeBackend, NativeDevice};
use vyre_driver::registry::{
    BackendCapability, BackendDevices, BackendPrecedence, BackendRegistration, nth_device, stamp_of_files,
};
use vyre_driver::{BackendError, CacheLimits, DeviceProfile, DispatchConfig, default_supported_ops};
use vyre_foundation::ir::OpId;
use vyre_foundation::kernel::Kernel;
use vyre_foundation::ops::SubgroupOp;

/// Reference this to link the registration below: a static library omits anything unreferenced.
pub static LINKED: u8 = 0;

inventory::submit! {
    BackendRegistration { id: BACKEND_ID, factory: || Ok(Box::new(OpenCl::new()?)), supported_ops }
}
inventory::submit! { BackendCapability { id: BACKEND_ID, dispatches: true, oracle: false } }
inventory::submit! { BackendPrecedence { id: BACKEND_ID, rank: 300 } }
inventory::submit! {
    BackendDevices {
        id: BACKEND_ID,
        names: OpenCl::device_names,
        open: |device| Ok(Box::new(OpenCl::open(device)?)),
        stamp: driver_stamp,
    }
}

/// Stamp of the files through which the loader finds drivers.
fn driver_stamp() -> String {
    let named = ["OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"].map(std::env::var_os).into_iter().flatten();
    let paths: Vec<PathBuf> =
        named.map(PathBuf::from).chain([PathBuf::from("/etc/OpenCL/vendors")]).collect();
    stamp_of_files(&paths)
}

/// A device reached through OpenCL.
///
/// ```
/// use vyre_driver::{DispatchConfig, VyreBackend};
/// use vyre_foundation::ir::{BufferDecl, DataType, Expr, Node, Program};
/// use vyre_opencl::OpenCl;
/// let out = BufferDecl::output("out", 0, DataType::U32).with_count(1);
/// let program = Program::wrapped(
///     vec![out],
///     [1, 1, 1],
///     vec![Node::store("out", Expr::u32(0), Expr::u32(9))],
/// );
/// match OpenCl::new() {
///     Ok(opencl) => {
///         let outputs = opencl.dispatch(&program, &[], &DispatchConfig::default())?;
///         assert_eq!(outputs, [[9, 0, 0, 0]]);
///     }
///     Err(missing) => println!("SKIP {missing}"),
/// }
/// # Ok::<(), vyre_driver::BackendError>(())
/// ```
#[derive(Debug)]
pub struct OpenCl {
    native: Native<OpenClDevice>,
}

impl NativeBackend for OpenCl {
    type Device = OpenClDevice;

    fn native(&self) -> &Native<OpenClDevice> {
        &self.native
    }
}

impl OpenCl {
    /// Opens the best device; the error reports what is missing if there is none.
    pub fn new() -> Result<OpenCl, BackendError> {
        OpenCl::open(0)
    }

    /// Opens the device with this index; 0 is the best.
    pub fn open(device: u32) -> Result<OpenCl, BackendError> {
        let all = devices()?;
        let (id, found) = nth_device(BACKEND_ID, &all, device)?;
        let native = Native::new(OpenClDevice::new(id, *found)?);
        end_after_own_threads();
        Ok(OpenCl { native })
    }

    /// Names of the devices, best first.
    pub fn device_names() -> Result<Vec<String>, BackendError> {
        Ok(devices()?.iter().map(|device| device.profile.device_name.to_string()).collect())
    }
}

vyre_driver::exit_handlers!();

impl NativeDevice for OpenClDevice {
    type Code = Compiled;
    type Memory = Resident;

    fn id(&self) -> &'static str {
        self.id
    }

    fn profile(&self) -> DeviceProfile {
        self.device.profile
    }

    fn supported_ops(&self) -> &HashSet<OpId> {
        supported_ops()
    }

    fn form(&self, kernel: &Kernel, config: &DispatchConfig) -> Form {
        form_of(self, kernel, config)
    }

    fn build(&self, kernel: &Kernel, form: Form) -> Result<Built<Compiled>, BackendError> {
        build_form(self, kernel, form)
    }

    fn run(&self, job: Job<'_, '_, Self>) -> Result<Option<Duration>, BackendError> {
        run(self, job)
    }

    fn run_all(&self, jobs: Vec<Job<'_, '_, Self>>) -> Result<(), Failed> {
        run_all(self, jobs)
    }

    fn batch_items(&self) -> usize {
        32
    }

    fn cache_limits(&self) -> Option<CacheLimits> {
        Some(CacheLimits::default())
    }

    fn allocate(&self, bytes: usize) -> Result<Resident, BackendError> {
        let residence = self.residence();
        let mut resident = Resident::new(self.id, &self.context, residence, bytes)?;
        if residence == Residence::Device {
            self.on_queue(|queue| self.clear_resident(queue, &mut resident))?;
        }
        Ok(resident)
    }

    fn write(&self, resident: &mut Resident, offset: usize, bytes: &[u8]) -> Result<(), BackendError> {
        if let Some(host) = resident.host_bytes_mut() {
            host[offset..offset + bytes.len()].copy_from_slice(bytes);
            return Ok(());
        }
        self.upload(resident, offset, bytes)
    }

    fn read(&self, resident: &Resident, offset: usize, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.download(resident, offset, bytes)
    }

    fn host_bytes<'m>(&self, resident: &'m Resident) -> Option<&'m [u8]> {
        resident.host_bytes()
    }
}

/// Every op except those of subgroups: OpenCL leaves the order of lanes to the device.
fn supported_ops() -> &'static HashSet<OpId> {
    static OPS: LazyLock<HashSet<OpId>> = LazyLock::new(|| {
        let mut ops = default_supported_ops().clone();
        for op in SubgroupOp::all() {
            ops.remove(&op.id());
        }
        ops
    });
    &OPS
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::Arc;
    use vyre_driver::{CompiledPipeline, pipeline};
    use vyre_foundation::text::parse;

    /// The best device; prints a line and returns `None` if there is none.
    pub(crate) fn opencl() -> Result<Option<OpenClDevice>, BackendError> {
        match devices() {
            Ok(all) => all.first().map(|device| OpenClDevice::new(BACKEND_ID, *device)).transpose(),
            Err(missing) => {
                println!("SKIP {missing}");
                Ok(None)
            }
        }
    }

    /// Compiles a program for a device treated as if it had separate memory.
    fn apart(source: &str) -> Result<Option<Arc<dyn CompiledPipeline>>, BackendError> {
        let Some(mut opencl) = opencl()? else { return Ok(None) };
        opencl.device.shares_memory = false;
        let opencl = Arc::new(OpenCl { native: Native::new(opencl) });
        pipeline::compile(opencl, &parse(source)?, &DispatchConfig::default()).map(Some)
    }

    #[test]
    fn a_device_with_separate_memory_gets_copies() -> Result<(), BackendError> {
        let source =
            "kernel add(a: u32 uniform, x: read u32[], y: output u32[], z: read_write u32[]) over x {
          region \"r\" { let i = invocation.x
            if x[i] != 3 { y[i] = x[i] + a }
            z[i] = z[i] + x[i] } }";
        let Some(add) = apart(source)? else { return Ok(()) };
        let numbers = |k: u32| (0..100_003).flat_map(|i: u32| (i * k).to_le_bytes()).collect::<Vec<u8>>();
        let inputs = [5_u32.to_le_bytes().to_vec(), numbers(1), numbers(7)];
        let mut sums: Vec<u8> = (0..100_003_u32).flat_map(|i| (i + 5).to_le_bytes()).collect();
        sums[12..16].fill(0);
        for timeout in [None, Some(Duration::from_secs(60))] {
            let config = DispatchConfig { timeout, ..DispatchConfig::default() };
            assert!(add.dispatch(&inputs, &config)? == [sums.clone(), numbers(8)], "timeout {timeout:?}");
        }
        Ok(())
    }

    #[test]
    fn slices_stop_at_the_deadline() -> Result<(), BackendError> {
        // Many seconds in one piece, a tenth of a second per slice.
        let source = "kernel long(out: output u32[]) over [65536, 64, 1] {
          region \"r\" { let k = invocation.x
            for j in 0..4000 { k = k * 1664525 + j }
            out[invocation.x] = k } }";
        let source = source.replace("u32[]", "u32[65536]");
        let Some(long) = apart(&source)? else { return Ok(()) };
        let config = DispatchConfig { timeout: Some(Duration::from_millis(1)), ..DispatchConfig::default() };
        let ended = long.dispatch(&[], &config);
        assert!(matches!(ended, Err(BackendError::Timeout { .. })), "{ended:?}");
        Ok(())
    }
}
