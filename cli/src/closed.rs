//! Whether standard output was closed when the program started (`>&-`).
//!
//! Rust's start-up puts `/dev/null` in the place of closed standard streams, so that no file opened later is
//! taken for one. A report written there is lost without an error. What was closed can only be seen
//! before that, by code that runs before `main`.

#![expect(
    unsafe_code,
    reason = "a function that the loader calls is declared by its section"
)]

use rustix::stdio::stdout;
use std::sync::atomic::{AtomicBool, Ordering};

static CLOSED: AtomicBool = AtomicBool::new(false);

/// The loader calls what this section names before Rust's start-up.
// SAFETY: the section holds pointers to functions of this type; `look` neither allocates nor panics, and
// relies on nothing that Rust's start-up provides.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    if rustix::io::fcntl_getfd(stdout()).is_err() {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

/// Whether it was.
pub(crate) fn stdout_was_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}
