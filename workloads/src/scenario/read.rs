//! From TOML to a scenario as written: keys, values, ranges, the grammar of every step.

use super::document::{Located, Table, Text};
use super::error::{Fault, Problem};
use super::expect;
use super::flow;
use super::guest_lock::GuestLocks;
use super::host_lock;
use super::model::{Rounds, ScenarioText, StepLine, VcpuText, VmText};
use super::step::{NAME, Statement, is_name};
use super::{DEFAULT_DURATION, DEFAULT_POLICY, HostThread, LONGEST_RUN, MAX_VCPUS, MAX_VMS, NEVER};
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::PolicySpec;
use stealtime_scheduler::time::Nanos;

const ROOT_KEYS: &[&str] = &[
    "name",
    "description",
    "policy",
    "cores",
    "duration",
    "warmup",
    "host-locks",
    "vm",
    "suites",
    "only-on",
    "host-thread",
    "expect",
    "parameters",
];
const VM_KEYS: &[&str] = &["name", "count", "shares", "cap", "locks", "vcpu"];
const VCPU_KEYS: &[&str] = &[
    "name", "count", "weight", "nice", "slice", "cap", "period", "budget", "start", "setup",
    "program", "repeat",
];
const STEPS: &str = "a list of steps, as [\"run 1ms\", \"sleep 5ms\"]";
const SHORTEST: Nanos = Nanos(1);
/// 100 per cent of a core for each of the most vCPUs.
const MAX_CAP: u32 = 10_000_000;

/// Reads a scenario file.
pub(super) fn scenario(source: &str) -> Result<ScenarioText, Fault> {
    let mut root = Table::root(source, "the scenario")?;
    root.only(ROOT_KEYS)?;
    let name = name(&mut root)?;
    let description = description(&mut root)?;
    let policy = match root.text("policy", "a policy, as \"fss\" or \"eevdf:slice=3ms\"")? {
        Some(text) => policy(&text)?,
        None => PolicySpec::clone(&DEFAULT_POLICY),
    };
    let cores = root
        .int("cores", 1..=u16::MAX)?
        .map_or(1, |cores| cores.value);
    let duration = root.time("duration", SHORTEST..=LONGEST_RUN)?;
    let warmup = root.time("warmup", Nanos::ZERO..=LONGEST_RUN)?;
    let suites = expect::suites(&mut root)?;
    let only_on = only_on(&mut root)?;
    let host_threads = root.tables("host-thread", "[[host-thread]]")?;
    let host_threads = host_threads
        .into_iter()
        .map(|table| host_thread(table, cores));
    let host_threads = host_threads.collect::<Result<_, _>>()?;
    let expectations = expect::expectations(&mut root)?;
    let host_locks = host_lock::kinds(&mut root)?;
    let vms = root.tables("vm", "[[vm]]")?;
    let vms = root.need(
        "vm",
        "at least one [[vm]] table",
        Some(vms).filter(|vms| !vms.is_empty()),
    )?;
    Ok(ScenarioText {
        name: name.value,
        description,
        policy,
        cores,
        duration: duration.map_or(DEFAULT_DURATION, |time| time.value),
        warmup: warmup.map_or(Nanos::ZERO, |time| time.value),
        host_locks,
        vms: vms.into_iter().map(vm).collect::<Result<_, _>>()?,
        suites,
        only_on,
        host_threads,
        expectations,
    })
}

fn host_thread(mut table: Table<'_>, cores: u16) -> Result<HostThread, Fault> {
    table.only(&["core", "start", "busy", "period"])?;
    let core = table.int("core", 0..=cores - 1)?;
    let start = table.time("start", Nanos::ZERO..=LONGEST_RUN)?;
    let bounds = Nanos::from_micros(100)..=Nanos::from_secs(10);
    let period = table.time("period", bounds)?;
    let period = table.need("period", "a time, as \"60ms\"", period)?.value;
    // Some of each period is left to the guests, or nothing could be measured.
    let busy = table.time(
        "busy",
        Nanos::from_micros(10)..=Nanos(period.get() / 10 * 9),
    )?;
    let busy = table.need("busy", "a time, as \"30ms\"", busy)?.value;
    Ok(HostThread {
        core: core.map_or(0, |core| core.value),
        start: start.map_or(Nanos::ZERO, |start| start.value),
        busy,
        period,
    })
}

fn only_on(root: &mut Table<'_>) -> Result<Option<String>, Fault> {
    let expected = "a backend, \"kvm\" or \"sim\"";
    match root.text("only-on", expected)? {
        Some(text) if !matches!(&*text.value, "kvm" | "sim") => {
            Err(value("only-on", &text, expected.to_owned()))
        }
        text => Ok(text.map(|text| text.value)),
    }
}

fn value(key: &str, text: &Text, expected: String) -> Fault {
    let problem = Problem::Value {
        key: key.to_owned(),
        written: format!("{:?}", text.value),
        expected,
    };
    Fault::at(text.at, problem)
}

fn name(table: &mut Table<'_>) -> Result<Located<String>, Fault> {
    let text = table.text("name", NAME)?;
    let text = table.need("name", NAME, text)?;
    if is_name(&text.value) {
        let at = text.at;
        Ok(Located {
            value: text.value,
            at,
        })
    } else {
        Err(value("name", &text, NAME.to_owned()))
    }
}

fn description(root: &mut Table<'_>) -> Result<String, Fault> {
    let expected = "one line that says what it shows";
    let text = root.text("description", expected)?;
    let text = root.need("description", expected, text)?;
    if text.value.trim().is_empty() || text.value.contains(['\n', '\r']) {
        return Err(value("description", &text, expected.to_owned()));
    }
    Ok(text.value.trim().to_owned())
}

fn policy(text: &Text) -> Result<PolicySpec, Fault> {
    let checked = text
        .value
        .parse::<PolicySpec>()
        .and_then(|spec| registry::check(&spec).map(|_| spec));
    checked.map_err(|error| Fault::at(text.at, Problem::Policy(error)))
}

fn vm(mut table: Table<'_>) -> Result<VmText, Fault> {
    table.only(VM_KEYS)?;
    let name = name(&mut table)?;
    let count = table.int("count", 1..=MAX_VMS)?;
    let shares = table.int("shares", 1..=65_535u32)?;
    let cap = table.int("cap", 1..=MAX_CAP)?;
    let locks = GuestLocks::read(&mut table)?;
    let vcpus = table.tables("vcpu", "[[vm.vcpu]]")?;
    let some = Some(vcpus).filter(|vcpus| !vcpus.is_empty());
    let vcpus = table.need("vcpu", "at least one [[vm.vcpu]] table", some)?;
    let vcpus = vcpus
        .into_iter()
        .map(|table| vcpu(table, &name.value, &locks));
    Ok(VmText {
        vcpus: vcpus.collect::<Result<_, _>>()?,
        count: count.map_or(1, |count| count.value),
        shares: shares.map(|shares| shares.value),
        cap,
        locks,
        name,
    })
}

fn vcpu(mut table: Table<'_>, vm: &str, locks: &GuestLocks) -> Result<VcpuText, Fault> {
    table.only(VCPU_KEYS)?;
    let name = name(&mut table)?;
    let count = table.int("count", 1..=MAX_VCPUS)?;
    let nice_at = table.key_at("nice");
    let weight = table.int("weight", 1..=10_000u32)?;
    let nice = table.int("nice", -20..=19i8)?;
    if weight.is_some() && nice.is_some() {
        let (one, other) = ("weight", "nice");
        return Err(Fault::at(nice_at, Problem::OnlyOne { one, other }));
    }
    let slice = table.time("slice", Nanos::from_micros(1)..=Nanos::from_secs(10))?;
    let cap = table.int("cap", 1..=100u32)?;
    let reservation = reservation(&mut table)?;
    let start = match table.word("start", "never") {
        true => Some(NEVER),
        false => table
            .time("start", Nanos::ZERO..=LONGEST_RUN)?
            .map(|start| start.value),
    };
    let rounds = rounds(&mut table)?;
    let setup = table.texts("setup", STEPS)?.unwrap_or_default();
    let program = table
        .texts("program", STEPS)?
        .filter(|steps| !steps.is_empty());
    let program = table.need("program", "at least one step", program)?;
    let vcpu = VcpuText {
        count: count.map_or(1, |count| count.value),
        weight: weight.map(|weight| weight.value),
        nice: nice.map(|nice| nice.value),
        slice: slice.map(|slice| slice.value),
        cap,
        reservation,
        start: start.unwrap_or(Nanos::ZERO),
        setup: steps(setup)?,
        program: steps(program)?,
        rounds,
        name,
    };
    flow::check(&vcpu, vm, locks)?;
    Ok(vcpu)
}

/// `period` and `budget`, which come together.
fn reservation(table: &mut Table<'_>) -> Result<Option<(Nanos, Nanos)>, Fault> {
    let longest = Nanos::from_secs(10);
    let bounds = Nanos::from_micros(100)..=longest;
    let period = table.time("period", bounds)?;
    let most = period.as_ref().map_or(longest, |period| period.value);
    let budget = table.time("budget", Nanos::from_micros(10)..=most)?;
    match (period, budget) {
        (Some(period), Some(budget)) => Ok(Some((period.value, budget.value))),
        (None, None) => Ok(None),
        (Some(_), None) => table.need("budget", "a time beside `period`", None),
        (None, Some(_)) => table.need("period", "a time beside `budget`", None),
    }
}

fn rounds(table: &mut Table<'_>) -> Result<Rounds, Fault> {
    let Some((written, mut fault)) = table.int_or_word("repeat") else {
        return Ok(Rounds::Forever);
    };
    match written.as_ref().map(|int| u32::try_from(*int)) {
        Ok(Ok(times @ 1..)) => Ok(Rounds::Times(times)),
        Err(word) if word == "once" => Ok(Rounds::Times(1)),
        Err(word) if word == "forever" => Ok(Rounds::Forever),
        _ => {
            if let Problem::Value { expected, .. } = &mut fault.problem {
                "a whole number from 1 to 4294967295, \"once\" or \"forever\"".clone_into(expected);
            }
            Err(fault)
        }
    }
}

fn steps(texts: Vec<Text>) -> Result<Vec<StepLine>, Fault> {
    let line = |text: Text| {
        let statement = Statement::parse(&text.value)
            .map_err(|error| Fault::step(text.place(error.at), &text.value, error.fault))?;
        let indent = text.value.len() - text.value.trim_start().len();
        Ok(StepLine {
            statement,
            at: text.place(indent),
            text: text.value.trim().to_owned(),
        })
    };
    texts.into_iter().map(line).collect()
}
