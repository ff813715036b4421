//! What must hold of a scenario's runs: its `[[expect]]` tables.
//!
//! An expectation is data: for which policies, which figure of which vCPUs, within which bounds, and
//! the claim in words. `stealtime_report::expect` checks it on a report; nothing here runs anything.

use super::build::Built;
use super::document::{Table, Text};
use super::error::{Fault, Problem, nearest};
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::{Options, PolicySpec};
use stealtime_scheduler::time::Nanos;

/// The sets of scenarios that `stealtime suite` knows, beside `all`.
pub const SUITES: &[&str] = &["fairness", "latency", "regressions"];

const KEYS: &[&str] = &[
    "claim", "policies", "except", "fault", "refused", "says", "figure", "of", "at-least",
    "at-most",
];
const BOUND: &str = "a bound that fits the figure, as \"25%\", \"10ms\" or \"0.99\"";
const POLICIES: &str = "a list of policies, as [\"eevdf\", \"credit:charge=tick\"]";

/// What is measured in what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// A part of the capacity of all cores, 0 to 1; written in per cent.
    Part,
    /// A length of time, in nanoseconds.
    Time,
    /// A plain number.
    Number,
}

macro_rules! figures {
    ($($(#[doc = $doc:literal])* $figure:ident = $word:literal, $unit:ident;)*) => {
        /// A figure of a report.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Figure {
            $($(#[doc = $doc])* $figure,)*
        }

        impl Figure {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$figure),*];

            /// How it is written.
            #[must_use]
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$figure => $word,)*
                }
            }

            /// What it is measured in.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self {
                    $(Self::$figure => Unit::$unit,)*
                }
            }
        }
    };
}

figures! {
    /// Time on a core as a part of the capacity of all cores.
    Share = "share", Part;
    /// Received ÷ entitled.
    Received = "received", Part;
    /// Guest code on a core.
    Run = "run", Time;
    /// Runnable without a core.
    Ready = "ready", Time;
    /// Waiting in the hypervisor.
    Blocked = "blocked", Time;
    /// CPU work that the guest did.
    Progress = "progress", Time;
    /// From waking to running: median.
    WakeupMedian = "wakeup-p50", Time;
    /// From waking to running: 99 of 100.
    WakeupP99 = "wakeup-p99", Time;
    /// From waking to running: the longest.
    WakeupMax = "wakeup-max", Time;
    /// The longest wait for a core.
    Starvation = "starvation", Time;
    /// Requests as the guest saw them: 99 of 100.
    RequestP99 = "request-p99", Time;
    /// Requests as the guest saw them: the longest.
    RequestMax = "request-max", Time;
    /// Requests that ended.
    Requests = "requests", Number;
    /// Times it lost its core against its will while it held a lock of its guest. Who waits for a lock and lends
    /// its turn is not meant.
    PreemptedInLock = "preempted-in-lock", Number;
    /// Jain's index of the run.
    Jain = "jain", Number;
    /// Part of the capacity that was used.
    Used = "used", Part;
    /// Time that granted vCPU threads waited for the host, as a part of the capacity.
    Interference = "interference", Part;
}

impl Figure {
    /// Whether it is one of the run and not of a vCPU.
    #[must_use]
    pub const fn of_run(self) -> bool {
        matches!(self, Self::Jain | Self::Used | Self::Interference)
    }

    /// A value of it in words.
    #[must_use]
    pub fn shown(self, value: f64) -> String {
        match self.unit() {
            Unit::Part => format!("{:.1} %", 100.0 * value),
            // Times of a report are whole nanoseconds, far below 2^53.
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float that came from a whole number of nanoseconds"
            )]
            Unit::Time => Nanos(value as u64).to_string(),
            Unit::Number => format!("{value:.3}")
                .trim_end_matches('0')
                .trim_end_matches('.')
                .to_owned(),
        }
    }

    fn bound(self, text: &str) -> Option<f64> {
        let number = |text: &str| text.trim().parse().ok().filter(|n: &f64| n.is_finite());
        match self.unit() {
            Unit::Part => Some(number(text.strip_suffix('%')?)? / 100.0),
            Unit::Time => Some(text.parse::<Nanos>().ok()?.get() as f64),
            Unit::Number => number(text),
        }
        .filter(|bound| *bound >= 0.0)
    }
}

/// Whose figure: `VM/VCPU`, where either name may end in `*`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Whom {
    /// As written.
    pub pattern: String,
}

impl Whom {
    /// Whether a vCPU is meant.
    #[must_use]
    pub fn includes(&self, vm: &str, vcpu: &str) -> bool {
        let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == pattern,
        };
        self.pattern
            .split_once('/')
            .is_some_and(|(of_vm, of_vcpu)| fits(of_vm, vm) && fits(of_vcpu, vcpu))
    }
}

/// What must hold.
#[derive(Clone, PartialEq, Debug)]
pub enum Must {
    /// A figure lies within bounds, for each of those meant; the run's own if nobody is meant.
    Lie {
        /// Which figure.
        figure: Figure,
        /// Whose.
        of: Option<Whom>,
        /// Its least value.
        at_least: Option<f64>,
        /// Its greatest value.
        at_most: Option<f64>,
    },
    /// The policy refuses the scenario, and its message contains this.
    Refuse(String),
    /// The report's diagnosis contains this.
    Say(String),
}

/// An expectation.
#[derive(Clone, PartialEq, Debug)]
pub struct Expectation {
    /// What must hold, in words.
    pub claim: String,
    /// For which policies; all if empty. An option that is not written may have any value.
    pub policies: Vec<PolicySpec>,
    /// For which not.
    pub except: Vec<PolicySpec>,
    /// It describes a known fault of these policies, which is to be seen.
    pub fault: bool,
    /// What is measured.
    pub must: Must,
}

impl Expectation {
    /// Whether it is about a policy.
    #[must_use]
    pub fn concerns(&self, policy: &PolicySpec) -> bool {
        let named = |list: &[PolicySpec]| list.iter().any(|one| covers(one, policy));
        (self.policies.is_empty() || named(&self.policies)) && !named(&self.except)
    }

    /// Whether it names a policy, so that this one must be able to run the scenario.
    #[must_use]
    pub fn names(&self, policy: &PolicySpec) -> bool {
        self.policies.iter().any(|one| covers(one, policy))
    }
}

/// Whether `written` is met by `policy`: the same name, and each option written has the same value
/// there, be it given or by default. What no policy understands is compared as it is written.
fn covers(written: &PolicySpec, policy: &PolicySpec) -> bool {
    if written.policy.name != policy.policy.name || written.layers != policy.layers {
        return false;
    }
    let effective = registry::find(&policy.policy.name)
        .and_then(|info| Options::check(&policy.policy, info.options));
    let Ok(effective) = effective else {
        return written == policy;
    };
    let known = registry::find(&written.policy.name)
        .and_then(|info| Options::check(&written.policy, info.options));
    known.is_ok() && {
        let mut options = written.policy.options.iter();
        options.all(|(name, value)| effective.word(name) == value)
    }
}

/// An expectation as written, with the place of its pattern.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ExpectText {
    pub(super) expectation: Expectation,
    pattern_at: usize,
}

/// Reads the `[[expect]]` tables.
pub(super) fn expectations(root: &mut Table<'_>) -> Result<Vec<ExpectText>, Fault> {
    let tables = root.tables("expect", "[[expect]]")?;
    tables.into_iter().map(expectation).collect()
}

/// Reads `suites`.
pub(super) fn suites(root: &mut Table<'_>) -> Result<Vec<String>, Fault> {
    let expected = format!("a list of {}", SUITES.join(", "));
    let names = root.texts("suites", &expected)?.unwrap_or_default();
    let known = |text: Text| {
        if SUITES.contains(&&*text.value) {
            Ok(text.value)
        } else {
            Err(wrong("suites", &text, &expected))
        }
    };
    names.into_iter().map(known).collect()
}

fn wrong(key: &str, text: &Text, expected: &str) -> Fault {
    let problem = Problem::Value {
        key: key.to_owned(),
        written: format!("{:?}", text.value),
        expected: expected.to_owned(),
    };
    Fault::at(text.at, problem)
}

fn expectation(mut table: Table<'_>) -> Result<ExpectText, Fault> {
    table.only(KEYS)?;
    let words = "what must hold, in words";
    let claim = table.text("claim", words)?;
    let claim = table.need("claim", words, claim)?.value;
    let refused = table.text("refused", "words of the refusal, as what the policy knows")?;
    let says = table.text("says", "words of the report's diagnosis")?;
    let fault = table.switch("fault")?.unwrap_or(false);
    // Options that are to be refused are no options: only the grammar is checked.
    let read = if refused.is_some() { grammar } else { checked };
    let policies = list(&mut table, "policies", read)?;
    let except = list(&mut table, "except", checked)?;
    let pattern_at = table.key_at("of");
    let must = match (refused, says) {
        (Some(words), None) => Must::Refuse(words.value),
        (None, Some(words)) => Must::Say(words.value),
        (None, None) => lie(&mut table)?,
        (Some(_), Some(_)) => {
            let (one, other) = ("refused", "says");
            return Err(Fault::at(table.at, Problem::OnlyOne { one, other }));
        }
    };
    Ok(ExpectText {
        expectation: Expectation {
            claim,
            policies,
            except,
            fault,
            must,
        },
        pattern_at,
    })
}

fn lie(table: &mut Table<'_>) -> Result<Must, Fault> {
    let words: Vec<_> = Figure::ALL.iter().map(|figure| figure.word()).collect();
    let expected = format!("one of {}", words.join(", "));
    let text = table.text("figure", &expected)?;
    let text = table.need("figure", &expected, text)?;
    let known = Figure::ALL
        .iter()
        .find(|figure| figure.word() == text.value);
    let figure = *known.ok_or_else(|| wrong("figure", &text, &expected))?;
    let of = table.text("of", "vCPUs, as \"VM/VCPU\" or \"VM*/*\"")?;
    let of = match (figure.of_run(), of) {
        (true, None) => None,
        (true, Some(text)) => return Err(wrong("of", &text, "nothing: it is a figure of the run")),
        (false, of) => Some(table.need("of", "vCPUs, as \"VM/VCPU\"", of)?.value),
    };
    let mut bound = |key| {
        let text = table.text(key, BOUND)?;
        text.map(|text| {
            figure
                .bound(&text.value)
                .ok_or_else(|| wrong(key, &text, BOUND))
        })
        .transpose()
    };
    let (at_least, at_most) = (bound("at-least")?, bound("at-most")?);
    if at_least.is_none() && at_most.is_none() {
        table.need::<()>("at-most", BOUND, None)?;
    }
    Ok(Must::Lie {
        figure,
        of: of.map(|pattern| Whom { pattern }),
        at_least,
        at_most,
    })
}

type Read = fn(&Text) -> Result<PolicySpec, Fault>;

fn list(table: &mut Table<'_>, key: &str, read: Read) -> Result<Vec<PolicySpec>, Fault> {
    let texts = table.texts(key, POLICIES)?.unwrap_or_default();
    texts.iter().map(read).collect()
}

fn grammar(text: &Text) -> Result<PolicySpec, Fault> {
    let parsed = text.value.parse::<PolicySpec>();
    parsed.map_err(|error| Fault::at(text.at, Problem::Policy(error)))
}

fn checked(text: &Text) -> Result<PolicySpec, Fault> {
    let spec = grammar(text)?;
    let known = registry::check(&spec);
    known.map_err(|error| Fault::at(text.at, Problem::Policy(error)))?;
    Ok(spec)
}

/// Every pattern means somebody.
pub(super) fn resolve(texts: Vec<ExpectText>, built: &Built) -> Result<Vec<Expectation>, Fault> {
    let names: Vec<_> = built
        .vcpus
        .iter()
        .map(|vcpu| (&*built.vms[vcpu.vm.index()].name, &*vcpu.name))
        .collect();
    let resolve = |text: ExpectText| {
        if let Must::Lie { of: Some(whom), .. } = &text.expectation.must
            && !names.iter().any(|(vm, vcpu)| whom.includes(vm, vcpu))
        {
            let all: Vec<_> = names
                .iter()
                .map(|(vm, vcpu)| format!("{vm}/{vcpu}"))
                .collect();
            let meant = nearest(&whom.pattern, all.iter().map(|name| &**name));
            let mut expected = "a vCPU of this scenario, as VM/VCPU".to_owned();
            if let Some(meant) = meant {
                expected = format!("{expected}; did you mean `{meant}`?");
            }
            let problem = Problem::Value {
                key: "of".into(),
                written: format!("{:?}", whom.pattern),
                expected,
            };
            return Err(Fault::at(text.pattern_at, problem));
        }
        Ok(text.expectation)
    };
    texts.into_iter().map(resolve).collect()
}
