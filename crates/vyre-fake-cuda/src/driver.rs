//! CUDA driver whose devices are the PTX interpreter.
//!
//! Each stream has a thread, so that work proceeds concurrently with the host, as on a device.
//! Calls that need a current context fail without one. A kernel with an illegal access breaks its
//! device's context: every later call returns the same error.

use crate::nvrtc::MARK;
use crate::ptx::{EntryFunction, Grid, LaunchError, LaunchExecutor, SimulatedMemory, parse};
use crate::setting;
use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const INVALID_DEVICE: c_int = 101;
const INVALID_IMAGE: c_int = 200;
const INVALID_CONTEXT: c_int = 201;
const NOT_FOUND: c_int = 500;
const NOT_READY: c_int = 600;
const ILLEGAL_ADDRESS: c_int = 700;
const MISALIGNED: c_int = 716;
const LAUNCH_FAILED: c_int = 719;

/// Instruction limit of a launch: more than any test needs.
const LIMIT: u64 = 1 << 40;

struct Device {
    memory: SimulatedMemory,
    sticky: AtomicI32,
    retained: AtomicU64,
}

fn devices() -> &'static Vec<Device> {
    static DEVICES: OnceLock<Vec<Device>> = OnceLock::new();
    let new = |_| Device {
        memory: SimulatedMemory::default(),
        sticky: AtomicI32::new(0),
        retained: AtomicU64::new(0),
    };
    DEVICES.get_or_init(|| (0..setting("devices", 1)).map(new).collect())
}

/// Launches so far on all devices: issued individually, and executed.
static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static RUN: AtomicU64 = AtomicU64::new(0);
/// Graph launches so far.
static GRAPHS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The current device, or the error to return.
fn current() -> Result<&'static Device, c_int> {
    let top = CURRENT.with_borrow(|stack| stack.last().copied()).ok_or(INVALID_CONTEXT)?;
    let device = devices().get(top).ok_or(INVALID_CONTEXT)?;
    match device.sticky.load(SeqCst) {
        0 => Ok(device),
        code => Err(code),
    }
}

/// Runs a call that needs a current context.
fn within(call: impl FnOnce(&'static Device) -> Result<(), c_int>) -> c_int {
    current().and_then(call).err().unwrap_or(0)
}

/// Number of launches and of graph launches; for tests.
///
/// # Safety
/// Both pointers can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyreFakeCounts(launches: *mut u64, graphs: *mut u64) {
    // SAFETY: the caller's promise.
    unsafe {
        *launches = LAUNCHES.load(SeqCst);
        *graphs = GRAPHS.load(SeqCst);
    }
}

/// Number of bytes allocated on a device; for tests.
#[unsafe(no_mangle)]
pub extern "C" fn vyreFakeInUse(device: u64) -> u64 {
    devices().get(device as usize).map_or(0, |device| device.memory.in_use().0)
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuInit(_flags: c_uint) -> c_int {
    if devices().is_empty() { NO_DEVICE } else { 0 }
}

/// # Safety
/// As the real one, like all functions below: pointers can be read or written as NVIDIA's
/// documentation specifies.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *version = setting("version", 12_090) as c_int };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *count = devices().len() as c_int };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int {
    if ordinal < 0 || ordinal as usize >= devices().len() {
        return INVALID_DEVICE;
    }
    // SAFETY: the caller's promise.
    unsafe { *device = ordinal };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, device: c_int) -> c_int {
    let text = format!("Fake {device}\0");
    let count = text.len().min(length.max(0) as usize);
    // SAFETY: the caller's promise.
    unsafe { name.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), count) };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *bytes = setting("memory", 1 << 30) as usize };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut c_int, what: c_int, device: c_int) -> c_int {
    let sm = if device == 0 { setting("sm", 75) } else { setting("sm", 75).max(90) } as c_int;
    let answer = match what {
        1..=3 => 1024,
        4 => 64,
        5 => 0x7fff_ffff,
        6 | 7 => 0xffff,
        8 => 48 << 10,
        10 => 32,
        // The first device is the larger one.
        13 => 1_500_000 - device,
        16 => 8,
        36 => 7_000_000,
        37 => 256,
        75 => sm / 10,
        76 => sm % 10,
        115 => setting("pools", 1) as c_int,
        18 | 20 => 0,
        _ => return INVALID_VALUE,
    };
    // SAFETY: the caller's promise.
    unsafe { *value = answer };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut *mut c_void, device: c_int) -> c_int {
    let Some(found) = devices().get(device as usize) else { return INVALID_DEVICE };
    found.retained.fetch_add(1, SeqCst);
    // SAFETY: the caller's promise. A context is its device's number plus one.
    unsafe { *context = (device as usize + 1) as *mut c_void };
    0
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuDevicePrimaryCtxRelease_v2(device: c_int) -> c_int {
    let Some(found) = devices().get(device as usize) else { return INVALID_DEVICE };
    let released = found.retained.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    if released.is_ok() { 0 } else { INVALID_CONTEXT }
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxPushCurrent_v2(context: *mut c_void) -> c_int {
    let device = (context as usize).wrapping_sub(1);
    if devices().get(device).is_none_or(|device| device.retained.load(SeqCst) == 0) {
        return INVALID_CONTEXT;
    }
    CURRENT.with_borrow_mut(|stack| stack.push(device));
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuCtxPopCurrent_v2(context: *mut *mut c_void) -> c_int {
    match CURRENT.with_borrow_mut(Vec::pop) {
        None => INVALID_CONTEXT,
        Some(device) => {
            // SAFETY: the caller's promise.
            unsafe { *context = (device + 1) as *mut c_void };
            0
        }
    }
}

// Code.

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadData(module: *mut *mut c_void, image: *const c_void) -> c_int {
    within(|_| {
        // SAFETY: an image is at least as long as its mark; what follows a valid mark is as long as
        // it states.
        let text = unsafe {
            let bytes = image.cast::<u8>();
            if std::slice::from_raw_parts(bytes, MARK.len()) != MARK {
                return Err(INVALID_IMAGE);
            }
            let length = bytes.add(8).cast::<u64>().read_unaligned() as usize;
            String::from_utf8_lossy(std::slice::from_raw_parts(bytes.add(16), length)).into_owned()
        };
        let parsed = parse(&text).map_err(|_| INVALID_IMAGE)?;
        let entries: Vec<Arc<EntryFunction>> = parsed.entries.into_iter().map(Arc::new).collect();
        // SAFETY: the caller's promise.
        unsafe { *module = Box::into_raw(Box::new(entries)).cast() };
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleUnload(module: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: created by `cuModuleLoadData` and not used afterwards. Launches hold their own
        // references to entries.
        drop(unsafe { Box::from_raw(module.cast::<Vec<Arc<EntryFunction>>>()) });
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(
    function: *mut *mut c_void,
    module: *mut c_void,
    name: *const c_char,
) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise; a function is the address of its entry in the module.
        unsafe {
            let name = CStr::from_ptr(name).to_string_lossy();
            let entries = &*module.cast::<Vec<Arc<EntryFunction>>>();
            let entry = entries.iter().find(|entry| entry.name == name).ok_or(NOT_FOUND)?;
            *function = std::ptr::from_ref(entry).cast_mut().cast();
        }
        Ok(())
    })
}

// Memory.

fn allocate(pointer: *mut u64, bytes: usize) -> c_int {
    within(|device| {
        if device.memory.in_use().0 + bytes as u64 > setting("memory", 1 << 30) {
            return Err(OUT_OF_MEMORY);
        }
        // SAFETY: promised by the caller of the exported function.
        unsafe { *pointer = device.memory.allocate(bytes as u64) };
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(pointer: *mut u64, bytes: usize) -> c_int {
    allocate(pointer, bytes)
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemFree_v2(pointer: u64) -> c_int {
    within(|device| device.memory.free(pointer).then_some(()).ok_or(INVALID_VALUE))
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocAsync(pointer: *mut u64, bytes: usize, _stream: *mut c_void) -> c_int {
    allocate(pointer, bytes)
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeAsync(pointer: u64, stream: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    within(|device| unsafe { put(device, stream, Command::Free(pointer)) })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetDefaultMemPool(pool: *mut *mut c_void, _device: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *pool = std::ptr::dangling_mut() };
    0
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolSetAttribute(_pool: *mut c_void, _what: c_int, _value: *mut c_void) -> c_int {
    0
}

/// As the real one.
#[unsafe(no_mangle)]
pub extern "C" fn cuMemPoolTrimTo(_pool: *mut c_void, _bytes: usize) -> c_int {
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, _flags: c_uint) -> c_int {
    within(|_| {
        let memory = vec![0_u64; bytes.div_ceil(8) + 1].into_boxed_slice();
        let length = memory.len() as u64;
        let start = Box::into_raw(memory).cast::<u64>();
        // SAFETY: the first word, which is not exposed, holds the length of the allocation.
        unsafe {
            *start = length;
            *pointer = start.add(1).cast();
        }
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(pointer: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: created by `cuMemHostAlloc` and not used afterwards.
        unsafe {
            let start = pointer.cast::<u64>().sub(1);
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(start, *start as usize)));
        }
        Ok(())
    })
}

// Streams.

/// Command in a stream.
#[derive(Clone)]
enum Command {
    CopyIn { to: u64, from: usize, bytes: usize },
    CopyOut { to: usize, from: u64, bytes: usize },
    Fill { at: u64, byte: u8, bytes: usize },
    Launch { entry: Arc<EntryFunction>, grid: Grid, parameters: Arc<[u8]> },
    Record(Arc<Mutex<Option<Instant>>>),
    Free(u64),
}

struct Stream {
    sender: Sender<Command>,
    state: Arc<(Mutex<u64>, Condvar)>,
    captured: Mutex<Option<Vec<Command>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stream {
    fn new(device: &'static Device) -> Stream {
        let (sender, receiver) = channel::<Command>();
        let state = Arc::new((Mutex::new(0), Condvar::new()));
        let done = state.clone();
        std::thread::spawn(move || {
            for command in receiver {
                // Commands after a fault are dropped.
                if device.sticky.load(SeqCst) == 0 {
                    execute(device, command);
                }
                *lock(&done.0) -= 1;
                done.1.notify_all();
            }
        });
        Stream { sender, state, captured: Mutex::new(None) }
    }

    fn send(&self, command: Command) -> Result<(), c_int> {
        *lock(&self.state.0) += 1;
        self.sender.send(command).map_err(|_| LAUNCH_FAILED)
    }
}

fn execute(device: &'static Device, command: Command) {
    static NEVER: AtomicBool = AtomicBool::new(false);
    let broken = match command {
        // SAFETY: the issuer of the copy keeps the host memory valid until the stream is done with
        // it.
        Command::CopyIn { to, from, bytes } => unsafe {
            let source = std::slice::from_raw_parts(from as *const u8, bytes);
            (!device.memory.write(to, source)).then_some(ILLEGAL_ADDRESS)
        },
        // SAFETY: as above.
        Command::CopyOut { to, from, bytes } => unsafe {
            let target = std::slice::from_raw_parts_mut(to as *mut u8, bytes);
            (!device.memory.read(from, target)).then_some(ILLEGAL_ADDRESS)
        },
        Command::Fill { at, byte, bytes } => {
            (!device.memory.write(at, &vec![byte; bytes])).then_some(ILLEGAL_ADDRESS)
        }
        Command::Launch { entry, grid, parameters } => {
            let number = RUN.fetch_add(1, SeqCst) + 1;
            if number == setting("hang", u64::MAX) {
                loop {
                    std::thread::park();
                }
            }
            let machine = LaunchExecutor { memory: &device.memory, limit: LIMIT, abandon: &NEVER };
            let injected =
                (number == setting("at", 0)).then(|| setting("fault", 0) as c_int).filter(|code| *code != 0);
            injected.or(match machine.run(&entry, grid, &parameters) {
                Ok(()) => None,
                Err(fault) => {
                    eprintln!("fake device, kernel `{}`: {fault:?}", entry.name);
                    Some(match fault {
                        LaunchError::IllegalAddress(_) => ILLEGAL_ADDRESS,
                        LaunchError::Misaligned(_) => MISALIGNED,
                        LaunchError::Undefined(_) | LaunchError::Endless | LaunchError::Abandoned => {
                            LAUNCH_FAILED
                        }
                    })
                }
            })
        }
        Command::Record(at) => {
            *lock(&at) = Some(Instant::now());
            None
        }
        Command::Free(pointer) => (!device.memory.free(pointer)).then_some(ILLEGAL_ADDRESS),
    };
    if let Some(code) = broken {
        device.sticky.store(code, SeqCst);
    }
}

/// Appends a command to a stream, or to the graph being captured from it.
///
/// # Safety
/// The stream was created by `cuStreamCreate`.
unsafe fn put(_device: &'static Device, stream: *mut c_void, command: Command) -> Result<(), c_int> {
    // SAFETY: the caller's promise.
    let stream = unsafe { stream.cast::<Stream>().as_ref() }.ok_or(INVALID_VALUE)?;
    match &mut *lock(&stream.captured) {
        Some(captured) => {
            captured.push(command);
            Ok(())
        }
        None => stream.send(command),
    }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut *mut c_void, _flags: c_uint) -> c_int {
    within(|device| {
        // SAFETY: the caller's promise.
        unsafe { *stream = Box::into_raw(Box::new(Stream::new(device))).cast() };
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: created by `cuStreamCreate` and not used afterwards. Its thread ends after the
        // pending work.
        drop(unsafe { Box::from_raw(stream.cast::<Stream>()) });
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamSynchronize(stream: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        let stream = unsafe { stream.cast::<Stream>().as_ref() }.ok_or(INVALID_VALUE)?;
        let mut pending = lock(&stream.state.0);
        while *pending > 0 {
            pending = stream.state.1.wait(pending).unwrap_or_else(PoisonError::into_inner);
        }
        drop(pending);
        current().map(|_| ())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamQuery(stream: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        let stream = unsafe { stream.cast::<Stream>().as_ref() }.ok_or(INVALID_VALUE)?;
        if *lock(&stream.state.0) > 0 { Err(NOT_READY) } else { current().map(|_| ()) }
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    within(|device| unsafe { put(device, stream, Command::CopyIn { to, from: from as usize, bytes }) })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    bytes: usize,
    stream: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    within(|device| unsafe { put(device, stream, Command::CopyOut { to: to as usize, from, bytes }) })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(at: u64, byte: u8, bytes: usize, stream: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    within(|device| unsafe { put(device, stream, Command::Fill { at, byte, bytes }) })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    x: c_uint,
    y: c_uint,
    z: c_uint,
    i: c_uint,
    j: c_uint,
    k: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    within(|device| {
        let threads = u64::from(i) * u64::from(j) * u64::from(k);
        if [x, y, z, i, j, k].contains(&0) || y > 0xffff || z > 0xffff || x > 0x7fff_ffff || threads > 1024 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the function is from `cuModuleGetFunction` and its module is loaded; there is a
        // pointer for each parameter, to as many bytes as it has.
        unsafe {
            let entry = function.cast::<Arc<EntryFunction>>().as_ref().ok_or(INVALID_VALUE)?.clone();
            let mut bytes = vec![0; entry.parameter_bytes()];
            for (at, parameter) in entry.parameters.iter().enumerate() {
                let from = (*parameters.add(at)).cast::<u8>();
                bytes[parameter.offset..parameter.offset + parameter.bytes]
                    .copy_from_slice(std::slice::from_raw_parts(from, parameter.bytes));
            }
            LAUNCHES.fetch_add(1, SeqCst);
            let grid = Grid { blocks: [x, y, z], threads: [i, j, k] };
            put(device, stream, Command::Launch { entry, grid, parameters: bytes.into() })
        }
    })
}

// Events.

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut *mut c_void, _flags: c_uint) -> c_int {
    within(|_| {
        let made: Arc<Mutex<Option<Instant>>> = Arc::default();
        // SAFETY: the caller's promise.
        unsafe { *event = Box::into_raw(Box::new(made)).cast() };
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: created by `cuEventCreate` and not used afterwards.
        drop(unsafe { Box::from_raw(event.cast::<Arc<Mutex<Option<Instant>>>>()) });
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    within(|device| {
        // SAFETY: the caller's promise.
        unsafe {
            let event = event.cast::<Arc<Mutex<Option<Instant>>>>().as_ref().ok_or(INVALID_VALUE)?;
            put(device, stream, Command::Record(event.clone()))
        }
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(time: *mut f32, from: *mut c_void, to: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        unsafe {
            let at = |event: *mut c_void| {
                let event = event.cast::<Arc<Mutex<Option<Instant>>>>().as_ref().ok_or(INVALID_VALUE)?;
                lock(event).ok_or(NOT_READY)
            };
            *time = at(to)?.saturating_duration_since(at(from)?).as_secs_f32() * 1e3;
        }
        Ok(())
    })
}

// Graphs.

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_int) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        let stream = unsafe { stream.cast::<Stream>().as_ref() }.ok_or(INVALID_VALUE)?;
        *lock(&stream.captured) = Some(Vec::new());
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        unsafe {
            let stream = stream.cast::<Stream>().as_ref().ok_or(INVALID_VALUE)?;
            let captured = lock(&stream.captured).take().ok_or(INVALID_VALUE)?;
            *graph = Box::into_raw(Box::new(captured)).cast();
        }
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(
    made: *mut *mut c_void,
    graph: *mut c_void,
    _flags: u64,
) -> c_int {
    within(|_| {
        // SAFETY: the caller's promise.
        unsafe {
            let commands = graph.cast::<Vec<Command>>().as_ref().ok_or(INVALID_VALUE)?.clone();
            *made = Box::into_raw(Box::new(commands)).cast();
        }
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(graph: *mut c_void, stream: *mut c_void) -> c_int {
    within(|device| {
        GRAPHS.fetch_add(1, SeqCst);
        // SAFETY: the caller's promise.
        unsafe {
            for command in graph.cast::<Vec<Command>>().as_ref().ok_or(INVALID_VALUE)? {
                put(device, stream, command.clone())?;
            }
        }
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphDestroy(graph: *mut c_void) -> c_int {
    within(|_| {
        // SAFETY: created by `cuStreamEndCapture` or `cuGraphInstantiateWithFlags` and not used
        // afterwards.
        drop(unsafe { Box::from_raw(graph.cast::<Vec<Command>>()) });
        Ok(())
    })
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(graph: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cuGraphDestroy(graph) }
}

// Errors.

fn text_of(code: c_int) -> &'static CStr {
    match code {
        0 => c"CUDA_SUCCESS",
        INVALID_VALUE => c"CUDA_ERROR_INVALID_VALUE",
        OUT_OF_MEMORY => c"CUDA_ERROR_OUT_OF_MEMORY",
        NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        INVALID_IMAGE => c"CUDA_ERROR_INVALID_IMAGE",
        INVALID_CONTEXT => c"CUDA_ERROR_INVALID_CONTEXT",
        ILLEGAL_ADDRESS => c"CUDA_ERROR_ILLEGAL_ADDRESS",
        MISALIGNED => c"CUDA_ERROR_MISALIGNED_ADDRESS",
        LAUNCH_FAILED => c"CUDA_ERROR_LAUNCH_FAILED",
        _ => c"CUDA_ERROR_UNKNOWN",
    }
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *text = text_of(code).as_ptr() };
    0
}

/// # Safety
/// As the real one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorString(code: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *text = text_of(code).as_ptr() };
    0
}
