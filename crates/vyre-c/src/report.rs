//! Reports of calls.

use crate::handles::{self, Use};
use crate::status::{FunctionError, guarded, vyre_status};
use crate::text::{self, visible};
use std::ffi::{CString, c_char, c_void};
use vyre::Report;

/// Facts about a finished call: which backend ran it, why, and how long it took.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct vyre_report(pub *mut c_void);

/// The numbers of a report.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct vyre_measures {
    /// The number of elements that the call was over.
    pub elements: u64,
    /// The time of the call in nanoseconds, transfers included.
    pub wall_ns: u64,
    /// The time of the kernel on the device in nanoseconds; 0 if the device did not report it.
    pub device_ns: u64,
    /// The number of messages that it printed.
    pub prints: u64,
}

struct HeldReport {
    report: Box<Report>,
    backend: CString,
}

/// Stores a handle to a new report in `place`.
///
/// # Safety
/// `place` can be written.
#[cold]
pub(crate) unsafe fn give(place: *mut vyre_report, report: Report) -> Result<(), FunctionError> {
    let backend = visible(report.backend);
    let handle = handles::insert(HeldReport { report: Box::new(report), backend })?;
    // SAFETY: by contract.
    unsafe { *place = vyre_report(handle as *mut c_void) };
    Ok(())
}

fn found(report: vyre_report) -> Result<Use, FunctionError> {
    if report.0.is_null() {
        return Err(FunctionError::null("the report"));
    }
    handles::find(report.0 as usize).ok_or_else(|| FunctionError::handle("report"))
}

fn held(used: &Use) -> Result<(&Report, &CString), FunctionError> {
    let held = used.get::<HeldReport>().ok_or_else(|| FunctionError::handle("report"))?;
    Ok((&held.report, &held.backend))
}

/// Returns the report as one line of text. Free it with `vyre_text_free`.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_report_text(report: vyre_report, text: *mut *mut c_char) -> vyre_status {
    // SAFETY: by contract.
    guarded(|| unsafe { shown(report, text, |report| report.to_string()) })
}

/// Returns what the kernel printed, one message per line. Free it with `vyre_text_free`.
///
/// # Safety
/// `text` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_report_prints(report: vyre_report, text: *mut *mut c_char) -> vyre_status {
    let prints = |report: &Report| {
        let lines: Vec<&str> = report.prints().messages.iter().map(|message| &*message.text).collect();
        lines.join("\n")
    };
    // SAFETY: by contract.
    guarded(|| unsafe { shown(report, text, prints) })
}

/// Stores a text made from a report in `text`.
///
/// # Safety
/// `text` is null or can be written.
unsafe fn shown(
    report: vyre_report,
    text: *mut *mut c_char,
    show: impl FnOnce(&Report) -> String,
) -> Result<(), FunctionError> {
    let used = found(report)?;
    let (report, _) = held(&used)?;
    if text.is_null() {
        return Err(FunctionError::null("`text`"));
    }
    // SAFETY: by contract.
    unsafe { text::give(text, &show(report)) }
}

/// Returns the numbers of a report.
///
/// # Safety
/// `measures` is null or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vyre_report_measures(
    report: vyre_report,
    measures: *mut vyre_measures,
) -> vyre_status {
    guarded(|| {
        let used = found(report)?;
        let (report, _) = held(&used)?;
        if measures.is_null() {
            return Err(FunctionError::null("`measures`"));
        }
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let found = vyre_measures {
            elements: report.elements as u64,
            wall_ns: nanoseconds(report.wall),
            device_ns: report.device.map_or(0, nanoseconds),
            prints: report.prints().messages.len() as u64,
        };
        // SAFETY: by contract.
        unsafe { *measures = found };
        Ok(())
    })
}

/// The backend that ran the call; null if the handle is not a report. The string is valid until the
/// report is freed.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_report_backend(report: vyre_report) -> *const c_char {
    let mut name = std::ptr::null();
    guarded(|| {
        let used = found(report)?;
        name = held(&used)?.1.as_ptr();
        Ok(())
    });
    name
}

/// Frees a report. Null is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn vyre_report_free(report: vyre_report) -> vyre_status {
    guarded(|| {
        if report.0.is_null() {
            return Ok(());
        }
        held(&found(report)?)?;
        if handles::free(report.0 as usize) { Ok(()) } else { Err(FunctionError::handle("report")) }
    })
}
