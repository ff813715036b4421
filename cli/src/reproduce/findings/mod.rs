//! What can be reproduced: a file a finding, a line in [`ALL`].

mod audio;
mod beyond;
mod build;
mod convoy;
mod hackbench;
mod ithread;
mod kpri;
mod kpri_fss;
mod kpri_ts;
mod lhp;
mod noregress;
mod pileup;
mod ping;
mod rwlock_inversion;
mod sticky_priority;

use super::model::Reproduction;

/// All of them, in the order in which they are run.
pub(super) static ALL: &[&Reproduction] = &[
    &kpri_fss::FINDING,
    &kpri_ts::FINDING,
    &convoy::FINDING,
    &build::FINDING,
    &rwlock_inversion::FINDING,
    &ping::FINDING,
    &ithread::FINDING,
    &sticky_priority::FINDING,
    &audio::FINDING,
    &lhp::FINDING,
    &hackbench::FINDING,
    &pileup::FINDING,
    &beyond::FINDING,
    &noregress::FINDING,
];

/// Other names under which findings are known, each with the one that is used here.
pub(super) const ALIASES: &[(&str, &str)] = &[("kpri-tss", "kpri-ts")];

/// The name that is used here.
pub(super) fn proper(name: &str) -> &str {
    let found = ALIASES.iter().find(|(alias, _)| *alias == name);
    found.map_or(name, |(_, proper)| proper)
}

#[cfg(test)]
mod tests {
    use super::super::model::Place;
    use super::{ALIASES, ALL, proper};
    use std::collections::HashSet;
    use stealtime_scheduler::registry;
    use stealtime_scheduler::spec::PolicySpec;
    use stealtime_workloads::scenario::embedded_text;

    #[test]
    fn rows_refer_to_cases_that_there_are() {
        for finding in ALL {
            for row in finding.rows {
                let cases = [Some(row.of), row.against];
                for case in cases.into_iter().flatten() {
                    let known = finding.cases.iter().any(|known| known.name == case);
                    assert!(known, "{}: {}: {case}", finding.name, row.name);
                }
            }
        }
    }

    #[test]
    fn names_differ() {
        let names: HashSet<_> = ALL.iter().map(|finding| finding.name).collect();
        assert_eq!(names.len(), ALL.len());
        for (alias, name) in ALIASES {
            assert!(
                !names.contains(alias) && names.contains(proper(alias)),
                "{name}"
            );
        }
        for finding in ALL {
            let rows: HashSet<_> = finding
                .rows
                .iter()
                .map(|r| (r.name, r.of, r.against))
                .collect();
            assert_eq!(rows.len(), finding.rows.len(), "{}", finding.name);
        }
    }

    #[test]
    fn a_parameter_s_documented_value_is_the_one_that_runs() {
        for finding in ALL {
            for knob in finding.knobs {
                let what = format!("{}: {}", finding.name, knob.name);
                assert!(knob.values.contains(&knob.documented), "{what}");
                let mut seen = false;
                for case in finding.cases {
                    let name = case.scenario.split(':').next().unwrap_or_default();
                    let text = embedded_text(name).expect("every scenario is there");
                    seen |= match knob.place {
                        Place::Scenario(template) => {
                            text.contains(&template.replace("{}", knob.documented))
                        }
                        Place::Policy(option) => {
                            let policy: PolicySpec = case.policy.parse().expect("a policy");
                            let (info, options) = registry::check(&policy).expect("known");
                            let there = info.options.iter().any(|known| known.name == option);
                            let written = format!("{option}={}", knob.documented);
                            let default = info.options.iter().any(|known| {
                                known.name == option && known.default == knob.documented
                            });
                            let _ = options;
                            there && (default || case.policy.contains(&written))
                        }
                    };
                }
                assert!(seen, "{what}: no case has the documented value");
            }
        }
    }
}
