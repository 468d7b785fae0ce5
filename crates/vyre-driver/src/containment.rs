//! Keeping a backend's panic from becoming the process's.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of a backend; a panic in it comes back as its message.
///
/// A backend that panicked half-way may be left in a state of its own making; the driver itself keeps nothing that such a
/// call could leave half-written, which is what `AssertUnwindSafe` stands for here.
pub fn contain<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| format!("it panicked: {}", panic_text(&*payload)))
}

fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}

#[cfg(test)]
mod tests {
    use super::contain;

    #[test]
    fn panics_become_messages() {
        assert_eq!(contain(|| 5), Ok(5));
        assert_eq!(contain(|| panic!("plain")), Err::<(), _>("it panicked: plain".into()));
        assert_eq!(contain(|| panic!("formatted {}", 1)), Err::<(), _>("it panicked: formatted 1".into()));
        let odd = contain(|| std::panic::panic_any(7u8));
        assert_eq!(odd, Err::<(), _>("it panicked: (no message)".into()));
    }
}
