//! The scenarios that every `stealtime` carries.

use super::Scenario;
use super::step::exact;
use std::sync::LazyLock;

macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),*]
    };
}

/// Name and text, in the order in which they are listed.
const TEXTS: &[(&str, &str)] = scenarios![
    "starvation",
    "kpri-fss",
    "weights",
    "shares",
    "spin-alone",
    "spin-pair",
    "sleeper",
    "periodic",
    "yield",
    "ping",
    "ping-critical",
    "locks",
    "build",
    "crowd",
    "faults",
    "fair-share",
    "many",
    "nice",
    "no-exit-loop",
    "parked-vcpus",
    "busy-neighbour",
    "busy-neighbour-weighted",
    "wide-stall",
    "half-empty-slots",
    "quota-freeze",
    "tick-exploit",
    "weights-not-understood",
    "audio-deadline",
    "rt-hog",
    "vm-storm",
    "thousand",
    "convoy",
    "convoy-alone",
    "inversion-two",
    "inversion-rwlock",
    "inversion-mutex",
    "inversion-kpri",
    "ping-flood",
    "ithread",
    "sticky",
    "audio",
    "lhp",
    "hackbench",
    "schbench",
    "request-response",
    "key-value",
    "microservice-chain",
    "wrong-yield",
    "boost-evaporates",
    "holder-never-releases",
    "inversion-guest",
    "pileup",
];

/// What a list of scenarios shows of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Embedded {
    /// By which it is asked for.
    pub name: &'static str,
    /// What it shows, in one line.
    pub description: String,
    /// What it sets, in one line: cores, duration, policy, VMs, vCPUs.
    pub options: String,
}

/// The text of an embedded scenario, if there is one of this name.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    let found = TEXTS.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// All names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TEXTS.iter().map(|(name, _)| *name)
}

/// All embedded scenarios.
#[must_use]
pub fn embedded() -> &'static [Embedded] {
    static ALL: LazyLock<Vec<Embedded>> = LazyLock::new(|| {
        let entry = |name: &'static str| {
            // A test reads every one of them; one that cannot be read is left out of the list.
            let scenario = Scenario::load(name).ok()?;
            Some(Embedded {
                name,
                options: options(&scenario),
                description: scenario.description,
            })
        };
        names().filter_map(entry).collect()
    });
    &ALL
}

fn options(scenario: &Scenario) -> String {
    let count = |n: usize, what: &str| match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    let mut parts = vec![
        count(usize::from(scenario.cores), "core"),
        exact(scenario.duration),
        format!("policy {}", scenario.policy),
        count(scenario.vms().len(), "VM"),
        count(scenario.vcpus().len(), "vCPU"),
    ];
    if scenario.warmup.get() > 0 {
        parts.insert(2, format!("warm-up {}", exact(scenario.warmup)));
    }
    parts.join(", ")
}
