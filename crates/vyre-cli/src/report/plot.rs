//! Plots as inline SVG.
//!
//! Horizontal positions are in percent of the plot's width, vertical ones in pixels, so that a plot
//! fits any width while its text keeps its size. Colours are classes of the page's style sheet, for
//! light and dark.

use super::page::escape;
use crate::quantity;
use std::fmt::Write;

/// Logarithmic time axis, in percent.
pub(super) struct TimeAxis {
    low: f64,
    high: f64,
}

impl TimeAxis {
    /// Axis over these times, extended to whole decades.
    pub(super) fn over(times: impl IntoIterator<Item = u64>) -> TimeAxis {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for time in times {
            let place = (time.max(1) as f64).log10();
            (low, high) = (low.min(place), high.max(place));
        }
        if low > high {
            return TimeAxis { low: 0.0, high: 1.0 };
        }
        let (low, high) = (low.floor(), high.ceil());
        TimeAxis { low, high: if high > low { high } else { low + 1.0 } }
    }

    pub(super) fn percent(&self, time: u64) -> f64 {
        ((time.max(1) as f64).log10() - self.low) / (self.high - self.low) * 100.0
    }

    /// Tick marks at decades, in at most `steps` steps.
    fn ticks(&self, steps: u32) -> impl Iterator<Item = u64> + use<> {
        let decades = (self.high - self.low) as u32;
        let step = decades.div_ceil(steps).max(1);
        let low = self.low as u32;
        (0..=decades).step_by(step as usize).map(move |k| 10u64.saturating_pow(low + k))
    }
}

/// Number of steps that fit on a phone: on the axis under a row, and on that of a chart.
const ROW_STEPS: u32 = 2;
const CHART_STEPS: u32 = 4;

/// Draws a mark at a time. A bar would suggest a zero, which a logarithmic axis does not have.
pub(super) fn time_mark(axis: &TimeAxis, time: u64, class: &str) -> String {
    format!(
        "<svg class=\"bar\" role=\"img\" aria-label=\"{}\"><rect class=\"track\" width=\"100%\" height=\"4\" y=\"8\" rx=\"2\"/>\
         <circle class=\"{class}\" cx=\"{:.2}%\" cy=\"10\" r=\"6\"/></svg>",
        quantity::time(time),
        axis.percent(time)
    )
}

/// Draws a bar for a share of a whole.
pub(super) fn share_bar(share: f64) -> String {
    let width = (share * 100.0).clamp(0.3, 100.0);
    format!(
        "<svg class=\"bar\" role=\"img\" aria-label=\"{width:.0} percent\"><rect class=\"track\" width=\"100%\" height=\"14\" y=\"3\" \
         rx=\"3\"/><rect class=\"series-0\" width=\"{width:.2}%\" height=\"14\" y=\"3\" rx=\"3\"/></svg>"
    )
}

/// Draws all samples of a candidate as dots, and their median as a line.
pub(super) fn strip(axis: &TimeAxis, samples: &[u64], class: &str) -> String {
    let mut svg = String::from(
        "<svg class=\"bar\" role=\"img\" aria-label=\"samples\"><rect class=\"track\" width=\"100%\" height=\"14\" y=\"3\" rx=\"3\"/>",
    );
    for (at, sample) in samples.iter().enumerate() {
        // Spread over a few heights, so that equal times do not hide each other.
        let y = 7 + (at % 3) * 3;
        let _ = write!(
            svg,
            "<circle class=\"{class} dot\" cx=\"{:.2}%\" cy=\"{y}\" r=\"2.5\"/>",
            axis.percent(*sample)
        );
    }
    if let Some(median) = median(samples) {
        let x = axis.percent(median);
        let _ = write!(svg, "<line class=\"median\" x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"1\" y2=\"19\"/>");
    }
    svg + "</svg>"
}

/// Labels under a row of marks or strips.
pub(super) fn time_axis(axis: &TimeAxis) -> String {
    let mut svg = String::from("<svg class=\"axis\" aria-hidden=\"true\">");
    for tick in axis.ticks(ROW_STEPS) {
        let x = axis.percent(tick);
        let anchor = match x {
            x if x < 1.0 => "start",
            x if x > 99.0 => "end",
            _ => "middle",
        };
        let label = whole_time(tick);
        let _ = write!(
            svg,
            "<line x1=\"{x:.2}%\" x2=\"{x:.2}%\" y1=\"0\" y2=\"4\"/><text x=\"{x:.2}%\" y=\"16\" text-anchor=\"{anchor}\">{label}</text>"
        );
    }
    svg + "</svg>"
}

/// Chart with one line per backend: time against size, both logarithmic.
pub(super) struct Curves {
    /// Sizes with data points, as exponents of two.
    pub(super) sizes: Vec<u32>,
    pub(super) curves: Vec<Curve>,
}

/// Line of one backend.
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) class: String,
    /// Pairs of size exponent and time.
    pub(super) points: Vec<(u32, u64)>,
}

const HEIGHT: f64 = 150.0;
/// Space above the highest line for half of its label.
const TOP: f64 = 8.0;

impl Curves {
    pub(super) fn draw(&self) -> String {
        let axis =
            TimeAxis::over(self.curves.iter().flat_map(|curve| curve.points.iter().map(|(_, time)| *time)));
        let (first, last) =
            (self.sizes.first().copied().unwrap_or(0), self.sizes.last().copied().unwrap_or(0).max(1));
        let across = |size: u32| {
            let span = f64::from(last.saturating_sub(first)).max(1.0);
            4.0 + f64::from(size.saturating_sub(first)) / span * 92.0
        };
        let down = |time: u64| TOP + HEIGHT - axis.percent(time) / 100.0 * HEIGHT;
        let mut svg =
            format!("<div class=\"chart\"><div class=\"scale\" style=\"height:{}px\">", HEIGHT + TOP);
        for tick in axis.ticks(CHART_STEPS) {
            let _ = write!(svg, "<span style=\"top:{:.1}px\">{}</span>", down(tick), whole_time(tick));
        }
        svg += "</div><svg class=\"curves\" role=\"img\" aria-label=\"time against size\">";
        for tick in axis.ticks(CHART_STEPS) {
            let y = down(tick);
            let _ = write!(svg, "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        }
        for Curve { name, class, points } in &self.curves {
            for pair in points.windows(2) {
                let [(a, from), (b, to)] = [pair[0], pair[1]];
                let _ = write!(
                    svg,
                    "<line class=\"curve {class}\" x1=\"{:.2}%\" y1=\"{:.1}\" x2=\"{:.2}%\" y2=\"{:.1}\"/>",
                    across(a),
                    down(from),
                    across(b),
                    down(to)
                );
            }
            for (size, time) in points {
                let _ = write!(
                    svg,
                    "<circle class=\"{class}\" cx=\"{:.2}%\" cy=\"{:.1}\" r=\"4\"><title>{}: {} at 2^{size}</title></circle>",
                    across(*size),
                    down(*time),
                    escape(name),
                    quantity::time(*time)
                );
            }
        }
        let step = self.sizes.len().div_ceil(6).max(1);
        for size in self.sizes.iter().step_by(step) {
            let y = HEIGHT + TOP + 18.0;
            let _ = write!(
                svg,
                "<text x=\"{:.2}%\" y=\"{y}\" text-anchor=\"middle\">2^{size}</text>",
                across(*size)
            );
        }
        svg + "</svg></div>"
    }
}

/// Short label for a power of ten in nanoseconds.
fn whole_time(ns: u64) -> String {
    match ns {
        0..=999 => format!("{ns} ns"),
        1_000..=999_999 => format!("{} µs", ns / 1_000),
        1_000_000..=999_999_999 => format!("{} ms", ns / 1_000_000),
        1_000_000_000.. => format!("{} s", ns / 1_000_000_000),
    }
}

/// Median sample; the lower of the two for an even count.
pub(super) fn median(samples: &[u64]) -> Option<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_room_for_every_time() {
        for times in [vec![], vec![0], vec![1], vec![5, 5], vec![1, u64::MAX], vec![1_000, 1_000_000]] {
            let axis = TimeAxis::over(times.iter().copied());
            for time in times {
                let percent = axis.percent(time);
                assert!((0.0..=100.0).contains(&percent), "{time}: {percent}");
            }
            assert!((1..=6).contains(&axis.ticks(CHART_STEPS).count()));
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3, 1, 2]), Some(2));
        assert_eq!(median(&[4, 1, 2, 3]), Some(2));
    }
}
