//! The driver's cache of compiled pipelines, persisted between processes.
//!
//! There is one file per adapter in vyre's cache folder. It is read when a device is opened and
//! written when the device is closed if anything was compiled meanwhile. Writes go to a temporary
//! file that replaces the old one, so readers never see a partial file. The driver validates the
//! data and starts with an empty cache if it is from another version.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// A driver's cache and its file on disk.
#[derive(Debug)]
pub(crate) struct DriverCache {
    pub(crate) cache: wgpu::PipelineCache,
    file: Option<PathBuf>,
    grown: AtomicBool,
}

impl DriverCache {
    pub(crate) fn open(
        device: &wgpu::Device,
        features: wgpu::Features,
        info: &wgpu::AdapterInfo,
    ) -> Option<DriverCache> {
        if !features.contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = folder().zip(wgpu::util::pipeline_cache_key(info)).map(|(folder, key)| folder.join(key));
        let data = file.as_deref().and_then(|file| std::fs::read(file).ok());
        let descriptor = wgpu::PipelineCacheDescriptor { label: None, data: data.as_deref(), fallback: true };
        // SAFETY: the data is what `get_data` returned for an adapter with this key: nothing else
        // writes the file. Wgpu and the driver check its header and fall back to an empty cache.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        Some(DriverCache { cache, file, grown: AtomicBool::new(false) })
    }

    /// Records that something was compiled.
    pub(crate) fn note_compile(&self) {
        self.grown.store(true, Ordering::Relaxed);
    }

    fn save(&self) -> std::io::Result<()> {
        let (Some(file), Some(data)) = (&self.file, self.cache.get_data()) else { return Ok(()) };
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut unfinished = file.clone();
        unfinished.set_extension(std::process::id().to_string());
        std::fs::write(&unfinished, data)?;
        std::fs::rename(&unfinished, file)
    }
}

impl Drop for DriverCache {
    fn drop(&mut self) {
        if self.grown.load(Ordering::Relaxed)
            && let Err(error) = self.save()
        {
            tracing::warn!("the driver's pipeline cache was not saved: {error}");
        }
    }
}

fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join(Path::new("vyre/wgpu")))
}
