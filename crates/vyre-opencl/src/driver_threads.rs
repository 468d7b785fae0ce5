//! Placement of the threads of a driver that uses the processor as its device.
//!
//! PoCL has one thread per processor and wakes them for every kernel. The system can put two that
//! wake together on one processor while another is idle, and leave them there for many
//! milliseconds: the same kernel then takes half or twice as long from one call to the next. Each
//! thread is therefore pinned to its own processor.
//!
//! A workgroup's private memory is on the stack of the thread that runs it, and the driver does not
//! check that it fits. These threads therefore get large stacks; [`stack_bytes`] returns their
//! size.

use cl3::device::{CL_DEVICE_TYPE_ALL, get_device_ids};
use cl3::types::{cl_device_id, cl_int, cl_platform_id};

/// Devices of a platform. A driver that creates threads does so on this first query.
#[cfg(not(target_os = "linux"))]
pub(crate) fn devices_of(platform: cl_platform_id) -> Result<Vec<cl_device_id>, cl_int> {
    get_device_ids(platform, CL_DEVICE_TYPE_ALL)
}

#[cfg(target_os = "linux")]
pub(crate) use linux::devices_of;

/// Stack size of the driver's threads. Conservative where it cannot be raised.
pub(crate) fn stack_bytes() -> u64 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    let bytes = large_stacks::granted();
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let bytes = 512 << 10;
    bytes
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod large_stacks {
    use std::mem::MaybeUninit;
    use std::sync::OnceLock;

    unsafe extern "C" {
        /// The C library's default attributes for new threads.
        fn pthread_getattr_default_np(attributes: *mut libc::pthread_attr_t) -> libc::c_int;
        fn pthread_setattr_default_np(attributes: *const libc::pthread_attr_t) -> libc::c_int;
    }

    /// Address space for the stack of each driver thread; memory is committed only as it is used.
    /// PoCL keeps the private memory of a whole workgroup there: half of it gives each of 1,024
    /// invocations 128 KiB.
    const WANTED: usize = 256 << 20;
    static GRANTED: OnceLock<usize> = OnceLock::new();

    pub(super) fn granted() -> u64 {
        // The threads of a driver that was loaded earlier have the default size.
        *GRANTED.get_or_init(usual) as u64
    }

    fn usual() -> usize {
        exchange(None).unwrap_or(512 << 10)
    }

    /// Runs a function that can start threads, which then get large stacks. Other threads that
    /// start meanwhile also get them, which is harmless.
    pub(super) fn with<T>(start: impl FnOnce() -> T) -> T {
        let before = exchange(Some(WANTED));
        let done = start();
        GRANTED.get_or_init(usual);
        if let Some(before) = before {
            exchange(Some(before));
        }
        done
    }

    /// Returns the default stack size and optionally replaces it.
    fn exchange(wanted: Option<usize>) -> Option<usize> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut size = 0;
        // SAFETY: the first call initialises the attributes before others use them, and the last
        // one destroys them.
        unsafe {
            if pthread_getattr_default_np(attributes.as_mut_ptr()) != 0 {
                return None;
            }
            let known = libc::pthread_attr_getstacksize(attributes.as_ptr(), &raw mut size) == 0;
            if let Some(wanted) = wanted
                && libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), wanted) == 0
            {
                pthread_setattr_default_np(attributes.as_ptr());
            }
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            known.then_some(size)
        }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::{CL_DEVICE_TYPE_ALL, cl_device_id, cl_int, cl_platform_id, get_device_ids};
    use cl3::device::{CL_DEVICE_MAX_COMPUTE_UNITS, CL_DEVICE_TYPE, CL_DEVICE_TYPE_CPU, get_device_info};
    use std::fs;

    /// Name of the querying thread. Threads that it starts inherit the name unless they set their
    /// own.
    const NAME: &str = "vyre-opencl-ask";

    /// A handle that OpenCL accepts on any thread.
    struct Shared<T>(T);

    // SAFETY: it holds only platforms and devices, which OpenCL accepts on any thread.
    unsafe impl<T> Send for Shared<T> {}

    /// Devices of a platform. If one is the processor and the driver started one thread per compute
    /// unit, each thread is pinned to its own processor.
    pub(crate) fn devices_of(platform: cl_platform_id) -> Result<Vec<cl_device_id>, cl_int> {
        let before = threads();
        let shared = Shared(platform);
        let asked = std::thread::Builder::new().name(NAME.into()).spawn(move || {
            let Shared(platform) = { shared };
            // SAFETY: it takes no arguments and returns a number.
            let asking = unsafe { libc::gettid() };
            let devices = with_large_stacks(|| get_device_ids(platform, CL_DEVICE_TYPE_ALL));
            (asking, devices.map(Shared))
        });
        let answer = asked.ok().and_then(|thread| thread.join().ok());
        let Some((asking, answer)) = answer else { return get_device_ids(platform, CL_DEVICE_TYPE_ALL) };
        let Shared(devices) = answer?;
        let units = devices.iter().find_map(|&device| units_of_processor(device));
        // A thread that has ended can remain listed for a moment.
        let is_new = |thread: &libc::pid_t| *thread != asking && !before.contains(thread);
        let started: Vec<libc::pid_t> = threads().into_iter().filter(is_new).collect();
        if units.is_some_and(|units| units == started.len()) {
            spread(&started);
        }
        Ok(devices)
    }

    #[cfg(target_env = "gnu")]
    use super::large_stacks::with as with_large_stacks;

    #[cfg(not(target_env = "gnu"))]
    fn with_large_stacks<T>(start: impl FnOnce() -> T) -> T {
        start()
    }

    /// Number of compute units, if the device is the processor.
    fn units_of_processor(device: cl_device_id) -> Option<usize> {
        let kinds: u64 = get_device_info(device, CL_DEVICE_TYPE).ok()?.into();
        let units: u32 = get_device_info(device, CL_DEVICE_MAX_COMPUTE_UNITS).ok()?.into();
        (kinds & CL_DEVICE_TYPE_CPU != 0).then_some(units as usize)
    }

    /// Threads of this process that have the name `NAME`, oldest first.
    pub(super) fn threads() -> Vec<libc::pid_t> {
        let Ok(tasks) = fs::read_dir("/proc/self/task") else { return Vec::new() };
        let named = |task: fs::DirEntry| {
            let name = fs::read_to_string(task.path().join("comm")).ok()?;
            (name.trim_end() == NAME).then(|| task.file_name().to_str()?.parse().ok())?
        };
        let mut threads: Vec<libc::pid_t> = tasks.flatten().filter_map(named).collect();
        threads.sort_unstable();
        threads
    }

    /// Pins each thread to its own processor, if this process can run on exactly that many.
    fn spread(threads: &[libc::pid_t]) {
        let allowed = processors_of(0);
        if allowed.len() != threads.len() {
            return;
        }
        for (&thread, &processor) in threads.iter().zip(&allowed) {
            // SAFETY: the number is within the set, a zeroed set is empty, and the call only reads
            // it. A thread for which it fails stays where it is.
            unsafe {
                let mut own: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(processor, &mut own);
                libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const own);
            }
        }
        tracing::debug!(threads = threads.len(), "the driver's threads have a processor each");
    }

    /// Processors that a thread can run on; 0 is the calling thread.
    pub(super) fn processors_of(thread: libc::pid_t) -> Vec<usize> {
        // SAFETY: the call writes the set, which stays empty on failure; the size is its own, and
        // the queried numbers are within it.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(thread, size_of::<libc::cpu_set_t>(), &raw mut set);
            (0..libc::CPU_SETSIZE as usize).filter(|&processor| libc::CPU_ISSET(processor, &set)).collect()
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::{processors_of, threads};

    #[test]
    fn threads_of_a_driver_on_the_processor_have_one_each() {
        if let Err(missing) = crate::device::devices() {
            return println!("SKIP {missing}");
        }
        let (own, workers) = (processors_of(0), threads());
        if workers.len() < 2 || workers.len() != own.len() {
            return println!("SKIP {} threads of drivers for {} processors", workers.len(), own.len());
        }
        let mut theirs: Vec<Vec<usize>> = workers.into_iter().map(processors_of).collect();
        theirs.sort();
        assert_eq!(theirs, own.into_iter().map(|processor| vec![processor]).collect::<Vec<_>>());
    }
}
