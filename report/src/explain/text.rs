//! An explanation as its user reads it: one frame a line, the reasons below.

use super::model::{Census, EndShare, Explanation, Frame, Reason, Waited};
use super::words::instant;
use std::fmt::Write;
use stealtime_scheduler::time::Nanos;

/// Columns of running text, and the widest a name may make the column of names.
const WIDTH: usize = 118;
const NAME_WIDTH: usize = 32;

/// From this part of a wait on nothing else is told of it.
const NEARLY_ALL: f64 = 0.95;

/// A smaller part of a wait is not told of.
const WORTH_TELLING: f64 = 0.005;

impl Explanation {
    /// The explanation as text, ending in a line break.
    #[must_use]
    pub fn to_text(&self) -> String {
        let cores = match self.cores {
            1 => "1 core".to_owned(),
            n => format!("{n} cores"),
        };
        let mut text = format!(
            "Scenario {}, policy {}, on {} with {cores}, {} vCPUs\n",
            self.scenario, self.policy, self.backend, self.vcpus
        );
        if self.waits.is_empty() {
            text.push_str("\nNobody waited: not for a core, and not for a lock.\n");
        }
        for (number, waited) in self.waits.iter().enumerate() {
            text.push('\n');
            wait(&mut text, number + 1, waited);
        }
        text
    }

    /// The explanation as one JSON document.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Numbers and texts only: this cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

fn part(of: u64, whole: u64) -> f64 {
    of as f64 / whole.max(1) as f64
}

fn per_cent(part: f64) -> String {
    if part > 0.0 && part < 0.01 {
        "<1 %".to_owned()
    } else {
        format!("{:.0} %", part * 100.0)
    }
}

fn wait(text: &mut String, number: usize, waited: &Waited) {
    let what = match (waited.waited_for, &waited.lock) {
        ("host-lock", Some(lock)) => format!("for host lock `{lock}`"),
        ("guest-lock", Some(lock)) => format!("for guest lock `{lock}`"),
        ("hypervisor", _) => "in the hypervisor".to_owned(),
        _ => "for a core".to_owned(),
    };
    let end = if waited.ended {
        ""
    } else {
        ", to the end of the measurement"
    };
    let alike = part(waited.alike_ns, waited.length_ns);
    let _ = writeln!(
        text,
        "{number}. {}/{} waited {} {what}, from {} on{end}\n   As it was at {}, and for {} of that time:\n",
        waited.vm,
        waited.vcpu,
        Nanos(waited.length_ns),
        instant(waited.from_ns),
        instant(waited.moment_ns),
        per_cent(alike),
    );
    frames(text, waited);
    text.push('\n');
    reasons(text, waited);
    if waited.like_it > 0 {
        let (n, s) = (waited.like_it, if waited.like_it == 1 { "" } else { "s" });
        let _ = writeln!(
            text,
            "   {n} more wait{s} among the longest had the same chain."
        );
    }
    if alike < NEARLY_ALL && waited.ends.len() > 1 {
        ends(text, waited);
    }
    paragraph(text, "   ", &census(&waited.census));
}

fn paragraph(text: &mut String, indent: &str, words: &str) {
    let blank = " ".repeat(indent.chars().count());
    let options = textwrap::Options::new(WIDTH)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent(indent)
        .subsequent_indent(&blank);
    let _ = writeln!(text, "{}", textwrap::fill(words, options));
}

fn frames(text: &mut String, waited: &Waited) {
    let name = |frame: &Frame| format!("{}/{}", frame.vm, frame.vcpu);
    let widths = waited
        .frames
        .iter()
        .map(|frame| name(frame).chars().count());
    let width = widths.max().unwrap_or(0).min(NAME_WIDTH);
    for (number, frame) in waited.frames.iter().enumerate() {
        let state = match frame.state {
            "hypervisor" => "IN HYPERVISOR".to_owned(),
            state => state.to_uppercase(),
        };
        let since = Nanos(waited.moment_ns.saturating_sub(frame.since_ns)).to_string();
        let rank = frame
            .rank
            .as_ref()
            .map_or_else(String::new, |rank| format!("[{rank}] "));
        let head = format!(
            "   #{number:<2} {:<width$}  {state:<8} {since:>8}  ",
            name(frame)
        );
        paragraph(text, &head, &format!("{rank}{}", frame.text));
    }
}

fn reasons(text: &mut String, waited: &Waited) {
    let (first, rest) = match waited.reasons.as_slice() {
        [] => return,
        [first, rest @ ..] => (first, rest),
    };
    let say = |reason: &Reason| reason.text.clone();
    match (waited.end, waited.frames.last()) {
        ("occupied", Some(last)) => {
            let head = format!("{}/{} was not preempted: ", last.vm, last.vcpu);
            paragraph(text, "   ", &format!("{head}{}.", say(first)));
        }
        _ => paragraph(text, "   ", &format!("It ends there: {}.", say(first))),
    }
    let also = rest.iter().filter(|reason| reason.reason != "open");
    for reason in also {
        paragraph(text, "   ", &format!("Besides: {}.", say(reason)));
    }
}

/// What the whole wait waited for: how much for each kind of end, and for whom most.
fn ends(text: &mut String, waited: &Waited) {
    let share = |length| per_cent(part(length, waited.length_ns));
    let one = |kind: &EndShare| {
        let whom = match (kind.whom, &kind.most) {
            (0, _) | (_, None) => String::new(),
            (1, Some((who, _))) => format!(" ({who})"),
            (n, Some((who, length))) => {
                format!(" ({n} vCPUs, most of it {who}, {})", share(*length))
            }
        };
        let what = match (kind.end, kind.reason) {
            ("occupied", Some("slice")) => "others within their slices",
            ("occupied", Some("open")) => "others in their turns",
            ("occupied", Some("kernel-priority")) => "kernel priority",
            ("occupied", Some("kicked")) => "kicks under way",
            ("occupied", Some("owed")) => "preemptions owed",
            ("occupied", Some("boosted")) => "boosts",
            ("occupied", Some("lent")) => "turns lent",
            ("runs", _) => "owners at work",
            ("entering", _) => "entering the core",
            ("waits", _) => "owners that wait for no lock",
            ("idle", _) => "idle cores",
            ("co-stopped", _) => "co-stops",
            (end, _) => end,
        };
        format!("{} {what}{whom}", share(kind.length_ns))
    };
    let told = |kind: &&EndShare| part(kind.length_ns, waited.length_ns) >= WORTH_TELLING;
    let all: Vec<_> = waited.ends.iter().filter(told).map(one).collect();
    paragraph(
        text,
        "   ",
        &format!("Of the whole wait: {}.", all.join(", ")),
    );
}

fn census(census: &Census) -> String {
    let mut parts: Vec<_> = census
        .host_locks
        .iter()
        .map(|(lock, n)| format!("{n} blocked for host lock `{lock}`"))
        .collect();
    let others = [
        (census.guest_locks, "asleep for guest locks"),
        (census.hypervisor, "waiting in the hypervisor"),
        (census.ready, "ready"),
        (census.on_core, "on a core"),
        (census.idle, "idle"),
    ];
    parts.extend(
        others
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}")),
    );
    format!("All vCPUs then: {}.", parts.join(", "))
}
