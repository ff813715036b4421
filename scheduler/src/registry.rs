//! All policies by name. A new policy is one file and one line here.

use crate::layers::Layers;
use crate::policies;
use crate::policy::Policy;
use crate::spec::{About, Inconsistent, OptionInfo, Options, PolicySpec, SpecError};

/// What a policy file says of itself.
#[derive(Debug)]
pub struct PolicyInfo {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// Its rules, in order.
    pub rules: &'static [&'static str],
    /// Where the algorithm comes from.
    pub source: &'static str,
    /// What surprises people about it.
    pub quirks: &'static [&'static str],
    /// The options it knows.
    pub options: &'static [OptionInfo],
    /// Who hands out the cores.
    pub scheduled_by: ScheduledBy,
    /// Whether values that fit one by one fit together.
    pub consistent: fn(&Options) -> Result<(), Inconsistent>,
    /// Makes one for a number of cores.
    pub build: fn(&Options, u16) -> Box<dyn Policy>,
}

/// Who hands out the cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScheduledBy {
    /// The dispatcher, by this policy.
    Policy,
    /// The host's own scheduler: every vCPU has a core of its own as far as the dispatcher knows.
    Host,
}

/// Every policy, in the order in which `stealtime policies` lists them.
pub const POLICIES: &[&PolicyInfo] = &[
    &policies::host::INFO,
    &policies::rr::INFO,
    &policies::fss::INFO,
    &policies::ts::INFO,
    &policies::eevdf::INFO,
    &policies::cfs::INFO,
    &policies::credit::INFO,
    &policies::credit2::INFO,
    &policies::rtds::INFO,
    &policies::stride::INFO,
    &policies::lottery::INFO,
    &policies::bvt::INFO,
    &policies::null::INFO,
    &policies::four_bsd::INFO,
    &policies::ule::INFO,
    &policies::gang::INFO,
    &policies::relaxed::INFO,
    &policies::balance::INFO,
];

/// Finds a policy by name.
///
/// # Errors
/// If there is none, with the names of all.
pub fn find(name: &str) -> Result<&'static PolicyInfo, SpecError> {
    POLICIES
        .iter()
        .copied()
        .find(|info| info.name == name)
        .ok_or_else(|| {
            let names: Vec<_> = POLICIES.iter().map(|info| info.name).collect();
            SpecError::UnknownPolicy {
                name: name.to_owned(),
                known: names.join(", "),
            }
        })
}

/// Checks a policy string in full: name, options, values, layers.
///
/// # Errors
/// Names what is not known, and what is.
pub fn check(spec: &PolicySpec) -> Result<(&'static PolicyInfo, Options), SpecError> {
    let info = find(&spec.policy.name)?;
    let options = Options::check(&spec.policy, info.options)?;
    (info.consistent)(&options).map_err(|wrong| SpecError::Value {
        policy: info.name.to_owned(),
        option: wrong.option.to_owned(),
        value: options.word(wrong.option).to_owned(),
        expected: wrong.expected,
    })?;
    Layers::of(spec, info)?;
    Ok((info, options))
}

impl PolicyInfo {
    /// What it says of itself.
    #[must_use]
    pub const fn about(&self) -> About {
        About {
            name: self.name,
            summary: self.summary,
            rules: self.rules,
            source: self.source,
            quirks: self.quirks,
            options: self.options,
            before: "",
        }
    }
}
