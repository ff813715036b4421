//! `stealtime lab`: real AMD-V KVM in an emulated machine, with its setup and any command inside.

use crate::args::{
    BackendChoice, LabArgs, LabCalibrateArgs, LabCommand, LabExecArgs, LabSetupArgs,
};
use crate::execute::Remarks;
use crate::failure::{Blame, Failure, Outcome, Status};
use crate::interrupt;
use crate::show;
use anyhow::{Context, Error, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::fs;
use std::io::{IsTerminal, Write, stderr};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use stealtime_lab::setup::{self, Given, Setup};
use stealtime_lab::{Command, Done, Lab, LabBackend, LabError, Machine, Stage};
use stealtime_sim::cost::CostModel;
use stealtime_vmm::backend::KvmBackend;
use stealtime_workloads::run::{Backend, Observer, Plan};

/// How long measuring costs may take inside: many times what it does on a quiet host.
const CALIBRATION_LIMIT: Duration = Duration::from_secs(300);

/// An emulated machine, decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Its cores.
    pub cores: u16,
    /// Whether its instructions are counted.
    pub exact: bool,
}

impl Choice {
    /// The machine for a scenario that wants so many cores: one more, for the VMM's own threads, as long
    /// as this host has as many; an exact one has one.
    #[must_use]
    pub fn new(arguments: &LabArgs, wanted: usize) -> Self {
        let host = std::thread::available_parallelism().map_or(1, usize::from);
        let usual = if arguments.exact {
            1
        } else {
            (wanted + 1).min(host).max(wanted)
        };
        let usual = u16::try_from(usual).unwrap_or(u16::MAX);
        Self {
            cores: arguments.lab_cores.unwrap_or(usual),
            exact: arguments.exact,
        }
    }

    /// One core, its instructions counted.
    #[must_use]
    pub const fn exact() -> Self {
        Self {
            cores: 1,
            exact: true,
        }
    }

    fn lab(self) -> Result<Lab, Failure> {
        let machine = Machine::new(self.cores, self.exact).bad_input()?;
        Lab::new(setup::find().machine()?, machine).machine()
    }

    /// Runs a plan in the lab.
    ///
    /// # Errors
    /// If the run did not take place.
    pub fn run(
        self,
        plan: &Plan,
        remarks: Remarks,
        stop: &AtomicBool,
        observer: &mut dyn Observer,
    ) -> Result<stealtime_workloads::run::Outcome, Failure> {
        let lab = self.lab()?;
        let spinner = Spinner::new(remarks);
        let mut backend = LabBackend::new(&lab, |stage| spinner.show(stage));
        backend
            .run(plan, stop, observer)
            .map_err(|error| match error {
                stealtime_lab::LabRunError::Lab(LabError::Interrupted { .. }) => {
                    Failure::new(Status::Interrupted, error)
                }
                error => Failure::new(
                    Status::Machine,
                    Error::new(error).context("the run did not take place"),
                ),
            })
    }
}

/// Carries a command out.
///
/// # Errors
/// If there is no lab, or what was asked of it cannot be done.
pub fn lab(command: &LabCommand) -> Outcome {
    match command {
        LabCommand::Setup(arguments) => set_up(arguments),
        LabCommand::Run(arguments) => {
            let mut arguments = arguments.clone();
            if !matches!(
                arguments.conditions.backend,
                BackendChoice::Auto | BackendChoice::Lab
            ) {
                return Err(Failure::new(
                    Status::BadInput,
                    anyhow!("`lab run` is on the lab's KVM: leave out `--backend`"),
                ));
            }
            arguments.conditions.backend = BackendChoice::Lab;
            crate::run::run(&arguments)
        }
        LabCommand::Exec(arguments) => exec(arguments),
        LabCommand::Calibrate(arguments) => calibrate(arguments),
        LabCommand::Predict(arguments) => crate::predict::predict(arguments),
    }
}

/// Carries out a plan that was sent into the lab. See [`stealtime_lab::carry_out_inside`].
///
/// # Errors
/// If this is not the inside of a lab, or the run did not take place.
pub fn inside() -> Outcome {
    stealtime_lab::carry_out_inside(&mut KvmBackend, interrupt::flag()).machine()?;
    Ok(Status::Done)
}

fn set_up(arguments: &LabSetupArgs) -> Outcome {
    let given = Given {
        qemu: arguments.qemu.clone(),
        kernel: arguments.kernel.clone(),
        modules: arguments.modules.clone(),
    };
    let setup = setup::setup(&given, &mut |line| eprintln!("{line}")).machine()?;
    show::print(&describe(&setup)).not_kept()?;
    Ok(Status::Done)
}

fn describe(setup: &Setup) -> String {
    let modules: Vec<_> = setup
        .modules
        .iter()
        .filter_map(|path| path.file_stem())
        .collect();
    let modules: Vec<_> = modules.iter().map(|name| name.to_string_lossy()).collect();
    let mut text = format!(
        "The lab is set up\n  QEMU      {}\n            {}\n  kernel    Linux {}\n            {}\n  \
         modules   {}\n",
        setup.qemu.version,
        setup.qemu.path.display(),
        setup.kernel_version,
        setup.kernel.display(),
        modules.join(", "),
    );
    for package in &setup.packages {
        text.push_str(&format!(
            "  package   {}\n            SHA-256 {}\n",
            package.file, package.sha256
        ));
    }
    text.push_str("Try: stealtime lab run\n");
    text
}

/// Any command line of this program, inside.
fn exec(arguments: &LabExecArgs) -> Outcome {
    let choice = Choice::new(&arguments.lab, 1);
    let limit = Duration::from_secs(arguments.limit);
    let done = choice.exec(arguments.command.clone(), limit, Remarks::new(false))?;
    stderr().write_all(&done.stderr).not_kept()?;
    show::print(&String::from_utf8_lossy(&done.stdout)).not_kept()?;
    if let Some(folder) = &arguments.keep {
        keep(&done, folder).not_kept()?;
    }
    status(done.status)
}

/// The costs of an exact machine, in a file.
fn calibrate(arguments: &LabCalibrateArgs) -> Outcome {
    let model = Choice::exact().costs(Remarks::new(false))?;
    model.store(&arguments.file).not_kept()?;
    let file = arguments.file.display();
    show::print(&format!(
        "The costs of {} are stored in {file}\nTry: STEALTIME_COSTS={file} stealtime run --backend sim\n",
        model.name
    ))
    .not_kept()?;
    Ok(Status::Done)
}

impl Choice {
    /// Carries a command out.
    fn exec(
        self,
        arguments: Vec<String>,
        limit: Duration,
        remarks: Remarks,
    ) -> Result<Done, Failure> {
        let lab = self.lab()?;
        let command = Command {
            arguments,
            files: Vec::new(),
            limit,
        };
        let spinner = Spinner::new(remarks);
        let done = lab.run(&command, interrupt::flag(), &mut |sight| {
            spinner.show(sight.stage);
        });
        drop(spinner);
        let done = done.map_err(|error| match error {
            LabError::Interrupted { .. } => Failure::new(Status::Interrupted, error),
            error => Failure::new(Status::Machine, error),
        })?;
        for failure in &done.failed_boots {
            remarks.tell(&format!(
                "note: the lab booted at the second try; the first: {failure}"
            ));
        }
        Ok(done)
    }

    /// The costs that `doctor` measures inside.
    ///
    /// # Errors
    /// If there is no lab, or nothing was measured.
    pub fn costs(self, remarks: Remarks) -> Result<CostModel, Failure> {
        let setup = setup::find().machine()?;
        let mut arguments = vec!["doctor", "--calibrate"];
        if self.exact {
            // Nothing takes its core, and looking whether anything does would take it minutes.
            arguments.push("--only-costs");
        }
        let arguments = arguments.into_iter().map(str::to_owned).collect();
        let done = self.exec(arguments, CALIBRATION_LIMIT, remarks)?;
        if status(done.status)? != Status::Done {
            let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
            let error = anyhow!(said).context("costs could not be measured inside the lab");
            return Err(Failure::new(Status::Machine, error));
        }
        let file = done
            .files
            .get("stealtime/costs.json")
            .ok_or_else(|| anyhow!("the lab's cost model did not come back"))
            .machine()?;
        let mut model: CostModel = serde_json::from_slice(file)
            .context("the lab's cost model cannot be read")
            .machine()?;
        if self.exact {
            // What differs there from one timer to the next is no chance.
            model = model.without_chance();
        }
        let how = if self.exact { "exact lab" } else { "lab" };
        model.name = format!(
            "{how} (Linux {}, QEMU {})",
            setup.kernel_version, setup.qemu.version
        );
        Ok(model)
    }
}

fn keep(done: &Done, folder: &Path) -> anyhow::Result<()> {
    for (name, bytes) in &done.files {
        let path = folder.join(name);
        let parent = path.parent().unwrap_or(folder);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, bytes))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// The status of the command inside, as our own.
fn status(status: i32) -> Outcome {
    let known = [
        Status::Done,
        Status::CheckFailed,
        Status::BadInput,
        Status::Machine,
        Status::NotKept,
        Status::Interrupted,
    ];
    known
        .into_iter()
        .find(|known| *known as i32 == status)
        .ok_or_else(|| {
            let error = anyhow!("the command ended inside the lab with status {status}");
            Failure::new(Status::Machine, error)
        })
}

/// Tells on a terminal how far a boot is.
#[derive(Debug)]
struct Spinner(ProgressBar);

impl Spinner {
    fn new(remarks: Remarks) -> Self {
        if remarks.quiet() || !stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(5));
        let style = ProgressStyle::with_template("{spinner} {msg} ({elapsed})")
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        spinner.set_style(style);
        spinner.enable_steady_tick(Duration::from_millis(200));
        Self(spinner)
    }

    fn show(&self, stage: Stage) {
        match stage {
            Stage::Booting => self.0.set_message("the lab's machine boots"),
            Stage::Started => self.0.set_message("the lab's machine loads kvm_amd"),
            Stage::Ready => self.0.set_message("the lab's machine has KVM"),
            // From here on the run has a bar of its own.
            Stage::Running => self.0.finish_and_clear(),
            Stage::Results => {}
        }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_machine_has_one_core_and_another_at_least_what_the_scenario_wants() {
        let exact = LabArgs {
            exact: true,
            ..LabArgs::default()
        };
        assert_eq!(Choice::new(&exact, 1).cores, 1);
        assert!(Choice::new(&LabArgs::default(), 5).cores >= 5);
        let asked = LabArgs {
            lab_cores: Some(3),
            ..LabArgs::default()
        };
        assert_eq!(Choice::new(&asked, 1).cores, 3);
    }

    #[test]
    fn statuses_from_inside_are_kept_and_unknown_ones_told() {
        assert_eq!(status(2).expect("known"), Status::BadInput);
        assert!(status(137).expect_err("unknown").lines().contains("137"));
    }
}
