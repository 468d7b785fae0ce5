//! What a call came to.

use pyo3::prelude::*;

/// What a call came to: which backend ran it, why that one, and how long it took.
#[pyclass(frozen, module = "vyre")]
pub(crate) struct Report(pub(crate) vyre::Report);

#[pymethods]
impl Report {
    /// The backend that ran it.
    #[getter]
    fn backend(&self) -> &'static str {
        self.0.backend
    }

    /// Why that one.
    #[getter]
    fn why(&self) -> String {
        self.0.why.to_string()
    }

    /// How many elements the call was over.
    #[getter]
    fn elements(&self) -> usize {
        self.0.elements
    }

    /// How long it took, transfers included, in seconds.
    #[getter]
    fn wall(&self) -> f64 {
        self.0.wall.as_secs_f64()
    }

    /// How long the kernel ran on the device, in seconds, where the device can tell.
    #[getter]
    fn device(&self) -> Option<f64> {
        self.0.device.map(|device| device.as_secs_f64())
    }

    /// The shape that its code was tuned to; `None` for the program's own.
    #[getter]
    fn tuned(&self) -> Option<String> {
        self.0.tuned.map(|shape| shape.to_string())
    }

    /// The backends that were tried before and could not, and why.
    #[getter]
    fn refusals(&self) -> Vec<(&'static str, String)> {
        self.0.refusals.iter().map(|attempt| (attempt.backend, attempt.reason.clone())).collect()
    }

    /// What it printed.
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
