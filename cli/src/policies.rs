//! `stealtime policies`: what the policies are, from what they say of themselves.

use crate::failure::{Blame, Outcome, Status};
use crate::show;
use std::fmt::Write;
use stealtime_scheduler::registry::{self, POLICIES, PolicyInfo};

/// All, or one in full.
///
/// # Errors
/// If there is no policy of that name.
pub fn policies(name: Option<&str>) -> Outcome {
    let text = match name {
        None => list(),
        Some(name) => describe(registry::find(name).bad_input()?),
    };
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}

fn list() -> String {
    let width = POLICIES
        .iter()
        .map(|info| info.name.len())
        .max()
        .unwrap_or(0);
    let mut text = String::new();
    for info in POLICIES {
        let _ = writeln!(text, "{:width$}  {}", info.name, info.summary);
        let options: Vec<_> = info
            .options
            .iter()
            .map(|option| format!("{}={}", option.name, option.default))
            .collect();
        if !options.is_empty() {
            let _ = writeln!(text, "{:width$}  options: {}", "", options.join(", "));
        }
    }
    text.push_str(
        "\n`stealtime policies NAME` tells a policy's rules, its options and what surprises people about it.\n",
    );
    text
}

fn describe(info: &PolicyInfo) -> String {
    let mut text = format!("{}: {}\n\nRules\n", info.name, info.summary);
    for (number, rule) in info.rules.iter().enumerate() {
        let _ = writeln!(text, "  {}. {rule}", number + 1);
    }
    let _ = writeln!(text, "\nSource\n  {}", info.source);
    if !info.quirks.is_empty() {
        text.push_str("\nWhat surprises people\n");
        for quirk in info.quirks {
            let _ = writeln!(text, "  * {quirk}");
        }
    }
    if info.options.is_empty() {
        text.push_str("\nIt has no options.\n");
        return text;
    }
    text.push_str("\nOptions\n");
    for option in info.options {
        let _ = writeln!(
            text,
            "  {}={}\n      {} ({})",
            option.name,
            option.default,
            option.help,
            option.kind.expected()
        );
    }
    let example = &info.options[0];
    let _ = writeln!(
        text,
        "\nWritten as --policy {}:{}={}",
        info.name, example.name, example.default
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_listed_and_told_with_all_its_options() {
        let all = list();
        for info in POLICIES {
            assert!(all.contains(info.summary), "{}", info.name);
            let one = describe(info);
            for option in info.options {
                assert!(one.contains(option.help), "{}: {}", info.name, option.name);
            }
            for rule in info.rules {
                assert!(one.contains(rule), "{}: {rule}", info.name);
            }
        }
    }
}
