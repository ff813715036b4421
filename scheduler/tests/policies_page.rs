//! `docs/policies.md` says what the code says.
//!
//! The page is written from what every policy says of itself and from the table of behaviours below.
//! `STEALTIME_WRITE_DOCS=1 cargo test -p stealtime-scheduler --test policies_page` writes it anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use stealtime_scheduler::layers::LAYERS;
use stealtime_scheduler::registry::{POLICIES, ScheduledBy};
use stealtime_scheduler::spec::About;

mod behaviours;

const HEAD: &str = "\
# Policies

Ask for one by name, with options: `fss`, `fss:variant=after,quantum=110ms`, `eevdf:slice=3ms`. A name,
option, value or vCPU parameter that a policy does not know is an error that lists what it knows.
`stealtime policies` prints the same.

This page is written from the code: see `scheduler/tests/policies_page.rs`. How to add a policy is in
[writing-a-policy.md](writing-a-policy.md).
";

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const LAYERS_HEAD: &str = "
# Layers

Added to a policy with `+`: `eevdf+delay`, `fss:variant=after+proxy`, `credit2+delay+relay`. They work
with every policy but `host`. Each answers one of three questions: whether a preemption is put off
(`delay`, `hint`), what becomes of the turn of a vCPU that waits for a lock (`pi`, `proxy`, `relay`),
to whom a vCPU yields that spins (`yieldto`). Two that answer the same one are refused.
";

fn entry(page: &mut String, info: &About, by: ScheduledBy) -> std::fmt::Result {
    let (first, rest) = info.summary.split_at(1);
    let summary = first.to_uppercase() + rest;
    writeln!(page, "\n## {}\n\n{summary}.\n", info.name)?;
    for (number, rule) in (1..).zip(info.rules) {
        writeln!(page, "{number}. {rule}")?;
    }
    writeln!(page, "\nSource: {}.", info.source)?;
    if by == ScheduledBy::Host {
        writeln!(page, "\nCores are handed out by the host's own scheduler.")?;
    }
    if !info.quirks.is_empty() {
        writeln!(page, "\nWhat surprises:\n")?;
        for quirk in info.quirks {
            writeln!(page, "* {quirk}")?;
        }
    }
    if !info.options.is_empty() {
        writeln!(
            page,
            "\n| option | value | default | meaning |\n|---|---|---|---|"
        )?;
        for option in info.options {
            let value = option.kind.expected();
            let (name, default, help) = (option.name, option.default, option.help);
            writeln!(page, "| `{name}` | {value} | `{default}` | {help} |")?;
        }
    }
    let shown = behaviours::ALL.iter().find(|(name, _)| *name == info.name);
    if let Some((_, behaviours)) = shown {
        writeln!(page, "\n| behaviour | test |\n|---|---|")?;
        for behaviour in *behaviours {
            let (what, file, test) = (behaviour.what, behaviour.file, behaviour.test);
            writeln!(page, "| {what} | `{file}`: `{test}` |")?;
        }
    }
    Ok(())
}

fn page() -> String {
    let mut page = HEAD.to_owned();
    for info in POLICIES {
        entry(&mut page, &info.about(), info.scheduled_by)
            .expect("a text takes whatever is written");
    }
    page.push_str(LAYERS_HEAD);
    for info in LAYERS {
        entry(&mut page, &info.about(), ScheduledBy::Policy)
            .expect("a text takes whatever is written");
    }
    page
}

#[test]
fn the_page_and_the_code_agree() {
    let path = root().join("docs/policies.md");
    let page = page();
    if std::env::var_os("STEALTIME_WRITE_DOCS").is_some() {
        std::fs::write(&path, page).expect("the page can be written");
        return;
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/policies.md is not what the code says: run \
         STEALTIME_WRITE_DOCS=1 cargo test -p stealtime-scheduler --test policies_page"
    );
}

#[test]
fn every_behaviour_names_a_test_that_exists() {
    for (policy, behaviours) in behaviours::ALL {
        let policies = POLICIES.iter().map(|info| info.name);
        let mut names = policies.chain(LAYERS.iter().map(|info| info.name));
        assert!(names.any(|name| name == *policy), "{policy}");
        for behaviour in *behaviours {
            let folder = match behaviour.file.split_once('/') {
                Some(("layers" | "dispatcher", _)) => "scheduler/src",
                _ => "scheduler/src/policies",
            };
            let path = root().join(folder).join(behaviour.file);
            let source = std::fs::read_to_string(&path).expect(behaviour.file);
            let test = format!("fn {}(", behaviour.test);
            assert!(source.contains(&test), "{}: {test}", behaviour.file);
        }
    }
}
