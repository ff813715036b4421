//! `stealtime policies`: what the policies and layers are, from what they say of themselves.

use crate::failure::{Blame, Outcome, Status};
use crate::show;
use std::fmt::Write;
use stealtime_scheduler::layers::{self, LAYERS};
use stealtime_scheduler::registry::{self, POLICIES};
use stealtime_scheduler::spec::About;

/// All, or one in full.
///
/// # Errors
/// If there is no policy or layer of that name.
pub fn policies(name: Option<&str>) -> Outcome {
    let text = match name {
        None => list(),
        Some(name) => {
            let layer = layers::find(name.trim_start_matches('+'));
            let about = match layer {
                Ok(layer) => layer.about(),
                Err(_) => registry::find(name).bad_input()?.about(),
            };
            describe(&about)
        }
    };
    show::print(&text).not_kept()?;
    Ok(Status::Done)
}

fn list() -> String {
    let policies: Vec<_> = POLICIES.iter().map(|info| info.about()).collect();
    let layers: Vec<_> = LAYERS.iter().map(|info| info.about()).collect();
    let names = policies.iter().chain(&layers).map(|info| info.name.len());
    let width = names.max().unwrap_or(0);
    let mut text = entries(&policies, width);
    text.push_str("\nLayers, added to a policy with `+` (`eevdf+delay+relay`):\n\n");
    text.push_str(&entries(&layers, width));
    text.push_str(
        "\n`stealtime policies NAME` tells its rules, its options and what surprises people about it.\n",
    );
    text
}

fn entries(all: &[About], width: usize) -> String {
    let mut text = String::new();
    for info in all {
        let _ = writeln!(text, "{:width$}  {}", info.name, info.summary);
        let options: Vec<_> = info
            .options
            .iter()
            .map(|option| format!("{}={}", option.name, option.default))
            .collect();
        if !options.is_empty() {
            let mark = format!("{:width$}  options: ", "");
            text.push_str(&item(&mark, &options.join(", ")));
        }
    }
    text
}

fn describe(info: &About) -> String {
    let mut text = format!("{}: {}\n\nRules\n", info.name, info.summary);
    for (number, rule) in info.rules.iter().enumerate() {
        text.push_str(&item(&format!("{:>3}. ", number + 1), rule));
    }
    text.push_str("\nSource\n");
    text.push_str(&item("  ", info.source));
    if !info.quirks.is_empty() {
        text.push_str("\nWhat surprises people\n");
        for quirk in info.quirks {
            text.push_str(&item("  * ", quirk));
        }
    }
    if info.options.is_empty() {
        text.push_str("\nIt has no options.\n");
        return text;
    }
    text.push_str("\nOptions\n");
    for option in info.options {
        let _ = writeln!(text, "  {}={}", option.name, option.default);
        let meaning = format!("{} ({})", option.help, option.kind.expected());
        text.push_str(&item("      ", &meaning));
    }
    let example = &info.options[0];
    let _ = writeln!(
        text,
        "\nWritten as --policy {}{}:{}={}",
        info.before, info.name, example.name, example.default
    );
    text
}

/// A paragraph behind a mark, broken into lines under its beginning.
fn item(mark: &str, paragraph: &str) -> String {
    let indent = " ".repeat(mark.len());
    // Names with dashes stay whole.
    let options = textwrap::Options::new(100)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .initial_indent(mark)
        .subsequent_indent(&indent);
    textwrap::fill(paragraph, options) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_listed_and_told_with_all_its_options() {
        let all = list();
        // How lines are broken is not the claim.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let policies = POLICIES.iter().map(|info| info.about());
        for info in policies.chain(LAYERS.iter().map(|info| info.about())) {
            assert!(all.contains(info.summary), "{}", info.name);
            let one = words(&describe(&info));
            for option in info.options {
                assert!(
                    one.contains(&words(option.help)),
                    "{}: {}",
                    info.name,
                    option.name
                );
            }
            for rule in info.rules {
                assert!(one.contains(&words(rule)), "{}: {rule}", info.name);
            }
        }
    }
}
