//! Locates and loads libcuda and NVRTC.
//!
//! libcuda comes with the driver and is on the system loader's path. NVRTC comes with a toolkit,
//! with Linux distributions, or with Python packages (`nvidia-cuda-nvrtc-cu12`), which install it
//! in their own folders. `VYRE_CUDA_LIBRARY` and `VYRE_NVRTC_LIBRARY` override the search; a
//! library they name that does not load is an error. Each library is loaded once per process and
//! stays loaded.

use crate::api::{Driver, Nvrtc};
use libloading::Library;
use std::ffi::c_int;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Environment variable that names libcuda.
pub(crate) const DRIVER_VARIABLE: &str = "VYRE_CUDA_LIBRARY";
/// Environment variable that names NVRTC.
pub(crate) const NVRTC_VARIABLE: &str = "VYRE_NVRTC_LIBRARY";

/// The oldest supported driver, in the encoding of `cuDriverGetVersion`: the first with the
/// barriers, streams and support for NVRTC's code that the backend relies on.
const OLDEST_DRIVER: c_int = 11_020;
/// The oldest NVRTC that generates device code, as major and minor version.
const OLDEST_NVRTC: (c_int, c_int) = (11, 2);

const DRIVER_NAMES: &[&str] =
    if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"] };
const NVRTC_NAMES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"]
};

/// The initialised driver and its version.
pub(crate) struct LoadedDriver {
    pub(crate) api: Driver,
    pub(crate) version: c_int,
    _library: Library,
}

/// The compiler and its version.
pub(crate) struct LoadedNvrtc {
    pub(crate) api: Nvrtc,
    pub(crate) version: (c_int, c_int),
    _library: Library,
}

/// The driver, or the reason why there is none.
pub(crate) fn driver() -> Result<&'static LoadedDriver, String> {
    static DRIVER: OnceLock<Result<LoadedDriver, String>> = OnceLock::new();
    DRIVER.get_or_init(load_driver).as_ref().map_err(Clone::clone)
}

/// The compiler, or the reason why there is none.
pub(crate) fn nvrtc() -> Result<&'static LoadedNvrtc, String> {
    static NVRTC: OnceLock<Result<LoadedNvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(load_nvrtc).as_ref().map_err(Clone::clone)
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn open(path: &Path) -> Result<Library, libloading::Error> {
    // SAFETY: NVIDIA's libraries can be loaded at any time by any thread; their initialisers are
    // trusted.
    unsafe { Library::new(path) }
}

fn load_driver() -> Result<LoadedDriver, String> {
    let library = match named(DRIVER_VARIABLE) {
        Some(path) => open(&path)
            .map_err(|error| format!("the library that {DRIVER_VARIABLE} names does not load: {error}"))?,
        None => {
            let found = DRIVER_NAMES.iter().find_map(|name| open(Path::new(name)).ok());
            found.ok_or("libcuda was not found: install NVIDIA's driver")?
        }
    };
    let api =
        Driver::of(&library).map_err(|name| format!("libcuda has no `{name}`: update NVIDIA's driver"))?;
    let mut version = 0;
    // SAFETY: the arguments match the functions' signatures.
    let (started, asked) = unsafe { ((api.init)(0), (api.driver_version)(&mut version)) };
    if asked == 0 && version < OLDEST_DRIVER {
        return Err(format!(
            "the driver is for CUDA {}, and the oldest that can be used is for CUDA {}: update NVIDIA's driver",
            shown(version),
            shown(OLDEST_DRIVER)
        ));
    }
    match started {
        0 => Ok(LoadedDriver { api, version, _library: library }),
        NO_DEVICE => Err("the driver finds no device".into()),
        code => Err(format!("the driver does not start: {} ({code})", error_text(&api, code))),
    }
}

/// `CUDA_ERROR_NO_DEVICE`.
const NO_DEVICE: c_int = 100;

/// The driver's text for an error.
pub(crate) fn error_text(api: &Driver, code: c_int) -> String {
    let mut text = std::ptr::null();
    // SAFETY: the driver returns a static text, or leaves the pointer null.
    unsafe {
        if (api.error_name)(code, &mut text) != 0 || text.is_null() {
            return "an error without a name".into();
        }
        let name = std::ffi::CStr::from_ptr(text).to_string_lossy().into_owned();
        match (api.error_text)(code, &mut text) {
            0 if !text.is_null() => format!("{name}, {}", std::ffi::CStr::from_ptr(text).to_string_lossy()),
            _ => name,
        }
    }
}

/// Formats a version as `major.minor`.
pub(crate) fn shown(version: c_int) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

fn load_nvrtc() -> Result<LoadedNvrtc, String> {
    if let Some(path) = named(NVRTC_VARIABLE) {
        let library = open(&path)
            .map_err(|error| format!("the library that {NVRTC_VARIABLE} names does not load: {error}"))?;
        return checked(library);
    }
    let names = NVRTC_NAMES.iter().map(PathBuf::from);
    let mut refused = None;
    for path in names.chain(installed()) {
        match open(&path).ok().map(checked) {
            None => {}
            Some(Ok(found)) => return Ok(found),
            Some(Err(reason)) => refused = Some(format!("{}: {reason}", path.display())),
        }
    }
    Err(refused.unwrap_or_else(|| {
        format!(
            "NVRTC, which compiles kernels, was not found: install it (`pip install nvidia-cuda-nvrtc-cu12`, or a CUDA \
             toolkit), or set {NVRTC_VARIABLE} to its path"
        )
    }))
}

fn checked(library: Library) -> Result<LoadedNvrtc, String> {
    let api = Nvrtc::of(&library).map_err(|name| format!("NVRTC has no `{name}`, so it is too old"))?;
    let mut version = (0, 0);
    // SAFETY: the function writes two numbers.
    let asked = unsafe { (api.version)(&mut version.0, &mut version.1) };
    if asked != 0 || version < OLDEST_NVRTC {
        let (major, minor) = OLDEST_NVRTC;
        return Err(format!(
            "NVRTC is {}.{}, and the oldest that can be used is {major}.{minor}",
            version.0, version.1
        ));
    }
    Ok(LoadedNvrtc { api, version, _library: library })
}

/// Paths of NVRTC in the folders of toolkits and Python packages, in search order.
pub(crate) fn installed() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let mut folders = Vec::new();
    for toolkit in ["CUDA_HOME", "CUDA_PATH", "CONDA_PREFIX"].into_iter().filter_map(variable) {
        folders.extend([toolkit.join("lib64"), toolkit.join("lib"), toolkit.join("bin")]);
    }
    folders.push("/usr/local/cuda/lib64".into());
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(variable);
    let home = variable("HOME").map(|home| home.join(".local"));
    for root in environments.chain(home).chain([PathBuf::from("/usr/local"), PathBuf::from("/usr")]) {
        // `lib/python3.12/site-packages`, on Debian `dist-packages`; on Windows
        // `Lib/site-packages`.
        let versions = below(&root.join("lib"), "python3");
        for packages in versions.iter().chain([&root.join("Lib")]) {
            for packages in ["site-packages", "dist-packages"].map(|name| packages.join(name).join("nvidia"))
            {
                folders
                    .extend(["cu13/lib", "cuda_nvrtc/lib", "cuda_nvrtc/bin"].map(|name| packages.join(name)));
            }
        }
    }
    let files = folders.iter().flat_map(|folder| NVRTC_NAMES.iter().map(move |name| folder.join(name)));
    files.filter(|file| file.is_file()).collect()
}

/// Entries of a folder whose names start with `start`, sorted by name.
fn below(folder: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(start));
    let mut found: Vec<PathBuf> = named.map(|entry| entry.path()).collect();
    found.sort();
    found
}

/// Files whose change indicates that a driver was replaced.
pub(crate) fn stamped_files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = [DRIVER_VARIABLE, NVRTC_VARIABLE].into_iter().filter_map(named).collect();
    let system = ["/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1"];
    files.extend(system.map(PathBuf::from));
    files.extend(DRIVER_NAMES.iter().map(PathBuf::from));
    files.extend(installed());
    files
}
