//! Reports of calls.

use pyo3::prelude::*;

/// Report of a call: which backend ran it, why that one, and how long it took.
#[pyclass(frozen, module = "vyre")]
pub(crate) struct Report(pub(crate) vyre::Report);

#[pymethods]
impl Report {
    /// The backend that ran the call.
    #[getter]
    fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// Why that backend was chosen.
    #[getter]
    fn why(&self) -> String {
        self.0.why.to_string()
    }

    /// The number of elements of the call.
    #[getter]
    fn elements(&self) -> usize {
        self.0.elements
    }

    /// The duration in seconds, including transfers.
    #[getter]
    fn wall(&self) -> f64 {
        self.0.wall.as_secs_f64()
    }

    /// The time that the kernel ran on the device in seconds, if the device reports it.
    #[getter]
    fn device(&self) -> Option<f64> {
        self.0.device.map(|device| device.as_secs_f64())
    }

    /// The shape that the code was tuned to; `None` for the program's own.
    #[getter]
    fn tuned(&self) -> Option<String> {
        self.0.tuned.map(|shape| shape.to_string())
    }

    /// The backends that were tried before and failed, and why.
    #[getter]
    fn refusals(&self) -> Vec<(&'static str, String)> {
        self.0.refusals.iter().map(|attempt| (attempt.backend, attempt.reason.clone())).collect()
    }

    /// The messages that the kernel printed.
    #[getter]
    fn prints(&self) -> Vec<String> {
        self.0.prints().messages.iter().map(|message| message.text.clone()).collect()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<vyre.Report: {}>", self.0)
    }

    fn _repr_html_(&self) -> String {
        let row = |name: &str, value: String| {
            format!("<tr><th style=\"text-align:left\">{name}</th><td>{}</td></tr>", escaped(&value))
        };
        let mut rows = row("backend", self.0.backend.into()) + &row("why", self.why());
        rows += &row("elements", self.0.elements.to_string());
        rows += &row("wall", format!("{:?}", self.0.wall));
        rows += &self.0.device.map_or_else(String::new, |device| row("device", format!("{device:?}")));
        rows += &self.tuned().map_or_else(String::new, |shape| row("tuned", shape));
        for (backend, reason) in self.refusals() {
            rows += &row(&format!("{backend} could not"), reason);
        }
        format!("<table>{rows}</table>")
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
