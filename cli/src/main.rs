//! The command `stealtime`.

use std::process::ExitCode;

fn main() -> ExitCode {
    stealtime_cli::main()
}
