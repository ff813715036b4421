//! The command `stealtime`: reads what was asked, runs it, prints what came of it.

pub mod args;
pub mod backend;
mod closed;
pub mod compare;
pub mod cores;
pub mod dist;
pub mod disturbance;
pub mod doctor;
pub mod execute;
pub mod explain;
pub mod failure;
pub mod interrupt;
pub mod lab;
pub mod planning;
pub mod policies;
pub mod predict;
pub mod render;
pub mod reproduce;
pub mod run;
pub mod scenarios;
pub mod show;
pub mod stored;
pub mod suite;
pub mod trace;

use args::{Cli, Command, RunArgs};
use clap::Parser;
use failure::{Blame, Outcome};
use std::process::ExitCode;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    // In the lab this very program is also the machine's first process.
    stealtime_lab::run_if_first_process();
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
    let command = cli
        .command
        .unwrap_or_else(|| Command::Run(RunArgs::default()));
    if let Some(quiet) = command.runs() {
        interrupt::watch(quiet).machine()?;
    }
    match command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Reproduce(arguments) => reproduce::reproduce(&arguments),
        Command::Policies { name } => policies::policies(name.as_deref()),
        Command::Scenarios => scenarios::scenarios(),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Suite(arguments) => suite::suite(&arguments),
        Command::Doctor {
            calibrate,
            only_costs,
        } => doctor::doctor(calibrate, only_costs),
        Command::Report { dir, format } => stored::report(&dir, format),
        Command::Replay { dir } => stored::replay(&dir),
        Command::Trace(arguments) => trace::trace(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Dist(arguments) => dist::dist(&arguments),
        Command::Lab(command) => lab::lab(&command),
        Command::InLab => lab::inside(),
    }
}
