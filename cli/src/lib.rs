//! The command `stealtime`: reads what was asked, runs it, prints what came of it.

pub mod args;
pub mod cores;
pub mod failure;
pub mod interrupt;
pub mod policies;
pub mod scenarios;
pub mod show;

use args::{Cli, Command};
use clap::Parser;
use failure::{Failure, Outcome, Status};
use std::process::ExitCode;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("warn")).init();
    let status = match dispatch(Cli::parse()) {
        Ok(status) => status,
        Err(failure) => {
            eprintln!("{}", failure.lines());
            failure.status
        }
    };
    ExitCode::from(status as u8)
}

fn dispatch(cli: Cli) -> Outcome {
    match cli.command {
        Some(Command::Policies { name }) => policies::policies(name.as_deref()),
        Some(Command::Scenarios) => scenarios::scenarios(),
        _ => Err(Failure::new(
            Status::BadInput,
            anyhow::anyhow!("this command is not there yet"),
        )),
    }
}
