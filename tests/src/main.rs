//! The command `stealtime` once more, built with the tests that run it.

use std::process::ExitCode;

fn main() -> ExitCode {
    stealtime_cli::main()
}
