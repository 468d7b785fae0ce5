//! Where the threads run of a driver that has the processor as its device.
//!
//! PoCL has a thread for each processor, and wakes them for every kernel. The system may put two that wake together on one
//! processor though another is idle, and leave them there for many milliseconds: the same kernel then takes half as long
//! or twice as long from one call to the next. So each of them is given a processor of its own.
//!
//! A workgroup's private memory lies on the stack of the thread that runs it, and a driver does not look whether it fits. So
//! these threads get large stacks, and [`stack_bytes`] says what they have.

use cl3::device::{CL_DEVICE_TYPE_ALL, get_device_ids};
use cl3::types::{cl_device_id, cl_int, cl_platform_id};

/// A platform's devices. A driver that makes threads does so on this first question.
#[cfg(not(target_os = "linux"))]
pub(crate) fn devices_of(platform: cl_platform_id) -> Result<Vec<cl_device_id>, cl_int> {
    get_device_ids(platform, CL_DEVICE_TYPE_ALL)
}

#[cfg(target_os = "linux")]
pub(crate) use linux::devices_of;

/// What the stack of a driver's thread has. Where nobody can ask for more, little is relied on.
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
        /// The C library's: what threads get that are started without attributes of their own.
        fn pthread_getattr_default_np(attributes: *mut libc::pthread_attr_t) -> libc::c_int;
        fn pthread_setattr_default_np(attributes: *const libc::pthread_attr_t) -> libc::c_int;
    }

    /// Address space for the stack of each of a driver's threads; memory is taken only for what is used of it.
    const WANTED: usize = 256 << 20;
    static GRANTED: OnceLock<usize> = OnceLock::new();

    pub(super) fn granted() -> u64 {
        // A driver whose threads were there before has what threads have by default.
        *GRANTED.get_or_init(usual) as u64
    }

    fn usual() -> usize {
        exchange(None).unwrap_or(512 << 10)
    }

    /// Runs what may start threads; these get large stacks. Others that start meanwhile do too, which does not hurt them.
    pub(super) fn with<T>(start: impl FnOnce() -> T) -> T {
        let before = exchange(Some(WANTED));
        let done = start();
        GRANTED.get_or_init(usual);
        if let Some(before) = before {
            exchange(Some(before));
        }
        done
    }

    /// The size of stacks by default, and another one in its place.
    fn exchange(wanted: Option<usize>) -> Option<usize> {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let mut size = 0;
        // SAFETY: the attributes are written by the first call before others use them, and given back by the last one.
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

    /// What the thread that asks is called. Threads that it starts are called the same, unless they name themselves.
    const NAME: &str = "vyre-opencl-ask";

    /// A handle that OpenCL takes from any thread.
    struct Shared<T>(T);

    // SAFETY: only platforms and devices are put into it, which OpenCL takes from any thread.
    unsafe impl<T> Send for Shared<T> {}

    /// A platform's devices. If one is the processor, and one thread for each of its units was started for it, each gets a
    /// processor of its own.
    pub(crate) fn devices_of(platform: cl_platform_id) -> Result<Vec<cl_device_id>, cl_int> {
        let before = threads();
        let shared = Shared(platform);
        let asked = std::thread::Builder::new().name(NAME.into()).spawn(move || {
            let Shared(platform) = { shared };
            // SAFETY: it takes nothing and gives a number.
            let asking = unsafe { libc::gettid() };
            let devices = with_large_stacks(|| get_device_ids(platform, CL_DEVICE_TYPE_ALL));
            (asking, devices.map(Shared))
        });
        let answer = asked.ok().and_then(|thread| thread.join().ok());
        let Some((asking, answer)) = answer else { return get_device_ids(platform, CL_DEVICE_TYPE_ALL) };
        let Shared(devices) = answer?;
        let units = devices.iter().find_map(|&device| units_of_processor(device));
        // A thread that has ended may still be listed for a moment.
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

    /// How many units the device has, if it is the processor.
    fn units_of_processor(device: cl_device_id) -> Option<usize> {
        let kinds: u64 = get_device_info(device, CL_DEVICE_TYPE).ok()?.into();
        let units: u32 = get_device_info(device, CL_DEVICE_MAX_COMPUTE_UNITS).ok()?.into();
        (kinds & CL_DEVICE_TYPE_CPU != 0).then_some(units as usize)
    }

    /// The threads of this process with that name, the oldest first.
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

    /// Gives each thread a processor of its own, if there are as many that this process may run on.
    fn spread(threads: &[libc::pid_t]) {
        let allowed = processors_of(0);
        if allowed.len() != threads.len() {
            return;
        }
        for (&thread, &processor) in threads.iter().zip(&allowed) {
            // SAFETY: the number is within the set, all zeros being an empty one, and the call only reads it. A thread for
            // which it fails stays as it is.
            unsafe {
                let mut own: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(processor, &mut own);
                libc::sched_setaffinity(thread, size_of::<libc::cpu_set_t>(), &raw const own);
            }
        }
        tracing::debug!(threads = threads.len(), "the driver's threads have a processor each");
    }

    /// The processors that a thread may run on, 0 being the calling one.
    pub(super) fn processors_of(thread: libc::pid_t) -> Vec<usize> {
        // SAFETY: the set is written by the call, and stays empty if that fails; the size is its own, and the numbers asked
        // for are within it.
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
