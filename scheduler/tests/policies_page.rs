//! `docs/policies.md` says what the code says.
//!
//! The page is written from what every policy says of itself and from the table of behaviours below.
//! `STEALTIME_WRITE_DOCS=1 cargo test -p stealtime-scheduler --test policies_page` writes it anew.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use stealtime_scheduler::registry::{POLICIES, PolicyInfo, ScheduledBy};

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

fn policy(page: &mut String, info: &PolicyInfo) -> std::fmt::Result {
    let (first, rest) = info.summary.split_at(1);
    let summary = first.to_uppercase() + rest;
    writeln!(page, "\n## {}\n\n{summary}.\n", info.name)?;
    for (number, rule) in (1..).zip(info.rules) {
        writeln!(page, "{number}. {rule}")?;
    }
    writeln!(page, "\nSource: {}.", info.source)?;
    if info.scheduled_by == ScheduledBy::Host {
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
        policy(&mut page, info).expect("a text takes whatever is written");
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
        assert!(POLICIES.iter().any(|info| info.name == *policy), "{policy}");
        for behaviour in *behaviours {
            let path = root().join("scheduler/src/policies").join(behaviour.file);
            let source = std::fs::read_to_string(&path).expect(behaviour.file);
            let test = format!("fn {}(", behaviour.test);
            assert!(source.contains(&test), "{}: {test}", behaviour.file);
        }
    }
}
