//! The sentences of a diagnosis.

use super::Facts;
use crate::model::{Cause, Diagnosis};
use stealtime_scheduler::event::Until;
use stealtime_scheduler::registry;
use stealtime_scheduler::spec::{OptionKind, PolicySpec};
use stealtime_scheduler::time::Nanos;

/// Of so many the names are given; of more, the number.
const NAMED: usize = 4;

/// What is said if there was no wait at all.
pub(super) fn nobody_waited(violations: u64) -> Diagnosis {
    let mut text = "No vCPU starved: none ever waited for a core.".to_owned();
    text.push_str(&broken_rules(violations));
    Diagnosis {
        starved: false,
        cause: None,
        text,
        fix: None,
    }
}

/// What is said of the longest wait.
pub(super) fn diagnosis(facts: &Facts<'_>) -> Diagnosis {
    let starved = facts.starved();
    let mut text = if starved {
        format!("{} {}", who_starved(facts), why(facts))
    } else {
        nobody_starved(facts)
    };
    text.push_str(&broken_rules(facts.violations));
    Diagnosis {
        starved,
        cause: Some(facts.cause),
        text,
        fix: if starved { fix(facts) } else { None },
    }
}

fn time(ns: u64) -> Nanos {
    Nanos(ns)
}

/// An instant of the run.
fn instant(ns: u64) -> String {
    format!("{:.3} s", Nanos(ns).as_secs_f64())
}

fn per_cent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

fn list(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] if names.len() <= NAMED => format!("{} and {last}", all.join(", ")),
        _ => format!("{} vCPUs", names.len()),
    }
}

fn broken_rules(violations: u64) -> String {
    match violations {
        0 => String::new(),
        1 => " The policy broke one of its rules once; see the violations.".to_owned(),
        n => format!(" The policy broke its rules {n} times; see the violations."),
    }
}

fn nobody_starved(facts: &Facts<'_>) -> String {
    let served = facts
        .least_served()
        .map_or_else(String::new, |(who, part)| {
            format!(
                "; everyone received at least {} of what it was entitled to ({} received least)",
                per_cent(part),
                facts.name(who)
            )
        });
    let because = match facts.cause {
        Cause::Turn => match facts.meanwhile.occupants.len() {
            0 => String::new(),
            1 => ", waiting for its turn after one other".to_owned(),
            n => format!(", waiting for its turn among {n} others"),
        },
        Cause::HostScheduler => ", as the host's scheduler decided".to_owned(),
        _ => String::new(),
    };
    format!(
        "No vCPU starved: the longest wait for a core was {} ({}, from {} on{because}){served}.",
        time(facts.length()),
        facts.name(facts.wait.vcpu),
        instant(facts.wait.from),
    )
}

fn who_starved(facts: &Facts<'_>) -> String {
    let victim = facts.name(facts.wait.vcpu);
    let length = time(facts.length());
    let from = instant(facts.wait.from);
    let end = if facts.to_the_end() {
        ", to the end of the run"
    } else {
        ""
    };
    let also: Vec<_> = facts.also().into_iter().map(|v| facts.name(v)).collect();
    let also = if also.is_empty() {
        String::new()
    } else {
        format!("; so did, at least half as long, {}", list(&also))
    };
    let short = facts.came_short();
    if let Some((who, part)) = short
        && who != facts.wait.vcpu
        && !facts.waited_too_long()
    {
        // It waited often, not long: the longest wait is somebody else's, and no more than an example.
        return format!(
            "{} starved: of what it was entitled to, it received {}. The longest wait for a core was {victim}'s: {length}, from {from} on{end}{also}.",
            facts.name(who),
            per_cent(part)
        );
    }
    let served = short.map_or_else(String::new, |(who, part)| {
        let who = if who == facts.wait.vcpu {
            "it".to_owned()
        } else {
            facts.name(who)
        };
        format!(
            " Of what it was entitled to, {who} received {}.",
            per_cent(part)
        )
    });
    format!("{victim} starved: it waited {length} for a core, from {from} on{end}{also}.{served}")
}

/// Who had the cores meanwhile, as a subject and what it did.
fn occupants(facts: &Facts<'_>) -> String {
    let all = &facts.meanwhile.occupants;
    let since = if facts.meanwhile.known_from > facts.wait.from {
        format!(
            " (as far as known, from {} on)",
            instant(facts.meanwhile.known_from)
        )
    } else {
        String::new()
    };
    let cores = if facts.plan.cores.len() == 1 {
        "the core"
    } else {
        "a core"
    };
    match all.as_slice() {
        [] => format!("Meanwhile nobody was on {cores}{since}"),
        [first, rest @ ..] => {
            let part = first.on_core as f64 / facts.length().max(1) as f64;
            let others: u64 = rest.iter().map(|o| o.on_core).sum();
            let others = match rest.len() {
                0 => String::new(),
                // Where the first had "100 %", others had nothing to speak of.
                _ if others < facts.length() / 200 => String::new(),
                1 => format!(", and {} for {}", facts.name(rest[0].vcpu), time(others)),
                n => format!(", and {n} others for {} together", time(others)),
            };
            format!(
                "Meanwhile {} was on {cores} for {} ({}){others}{since}",
                facts.name(first.vcpu),
                time(first.on_core),
                per_cent(part),
            )
        }
    }
}

fn why(facts: &Facts<'_>) -> String {
    let who = occupants(facts);
    match facts.cause {
        Cause::KernelPriority => format!("{who}{}.", kernel_priority(facts)),
        Cause::DeferredPreemption => format!("{who}{}.", deferred(facts)),
        Cause::SlowStop => {
            let stop = facts.stop.map_or_else(String::new, |stop| {
                let asked = instant(stop.asked);
                if stop.left == facts.end {
                    return format!(": its core was asked back at {asked} and was never left");
                }
                let took = time(stop.left.saturating_sub(stop.asked));
                format!(": its core was asked back at {asked} and it took {took} to leave it")
            });
            format!("{who}{stop}.")
        }
        Cause::Turn => {
            let turns: u64 = facts.meanwhile.occupants.iter().map(|o| o.turns).sum();
            let times = if turns == 1 {
                "one turn".to_owned()
            } else {
                format!("{turns} turns")
            };
            format!(
                "{who}: it waited for its turn behind them, {times} in all, and none of them stood at kernel priority."
            )
        }
        Cause::LateEntry => format!(
            "It had been granted a core for {} of that time, but its thread did not get to run: the host was busy with something else.",
            time(facts.wait.granted_for)
        ),
        Cause::IdleCores => format!(
            "{who}: cores were idle although it was ready to run, so the policy left them idle."
        ),
        Cause::HostScheduler => {
            "The host's own scheduler decided this; who ran instead is not known to us.".to_owned()
        }
    }
}

fn kernel_priority(facts: &Facts<'_>) -> String {
    let Some(priority) = facts.priority else {
        return ": at kernel priority, where no quantum ends and no other vCPU goes first"
            .to_owned();
    };
    let taken = facts.lock_name(&priority).map_or_else(String::new, |lock| {
        let kept = priority.released.map_or_else(String::new, |at| {
            format!(", kept after it released the lock at {}", instant(at))
        });
        format!(", which it got when it held host lock `{lock}`{kept}")
    });
    let returns = match priority.user_returns {
        0 => "its thread made no return to user mode since, which would have ended it".to_owned(),
        1 => "its thread returned to user mode once since".to_owned(),
        n => format!("its thread returned to user mode {n} times since"),
    };
    let until = priority
        .until
        .map_or_else(String::new, |until| format!(" until {}", instant(until)));
    format!(
        ". It was not preempted because from {} on{until} it stood at kernel priority{taken}; {returns}",
        instant(priority.since)
    )
}

fn deferred(facts: &Facts<'_>) -> String {
    facts.deferral.map_or_else(String::new, |deferral| {
        let moment = match deferral.moment {
            Until::CriticalExit => "it leaves its critical section",
            Until::UserReturn => "its thread returns to user mode",
            Until::GuestEntry => "the hypervisor's work on its behalf is done",
        };
        format!(
            ". A preemption of it was only remembered from {} on, until {moment}",
            instant(deferral.since)
        )
    })
}

/// The same policy without kernel priority, if it has such a variant and is not it already.
fn fix(facts: &Facts<'_>) -> Option<String> {
    match facts.cause {
        Cause::KernelPriority => {
            let cured = without_kernel_priority(&facts.plan.policy)?;
            Some(format!("`--policy {cured}` has no kernel priority."))
        }
        Cause::LateEntry => {
            Some("Run on cores that nothing else on the host uses (`--cores`).".to_owned())
        }
        _ => None,
    }
}

fn without_kernel_priority(spec: &PolicySpec) -> Option<PolicySpec> {
    let (info, _) = registry::check(spec).ok()?;
    let after =
        |kind: OptionKind| matches!(kind, OptionKind::Word(words) if words.contains(&"after"));
    info.options
        .iter()
        .find(|option| option.name == "variant" && after(option.kind))?;
    let mut cured = spec.clone();
    let options = &mut cured.policy.options;
    options.retain(|(name, _)| name != "variant" && name != "kpri");
    options.insert(0, ("variant".to_owned(), "after".to_owned()));
    (cured != *spec && registry::check(&cured).is_ok()).then_some(cured)
}
