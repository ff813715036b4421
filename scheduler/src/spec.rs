//! Policy strings: `fss`, `fss:variant=after,quantum=110ms`, `eevdf:slice=3ms+proxy`.
//!
//! `name[:option=value[,option=value]…][+layer[:option=value…]]…`. Nothing is ever ignored: a name,
//! option or value that is not known is an error that lists what is.

use crate::time::Nanos;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A name with options, as written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NamedOptions {
    /// The name of a policy or layer.
    pub name: String,
    /// Options in the order written.
    pub options: Vec<(String, String)>,
}

/// A policy string, taken apart but not yet checked against what the policy knows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PolicySpec {
    /// The policy.
    pub policy: NamedOptions,
    /// Layers, in the order written.
    pub layers: Vec<NamedOptions>,
}

/// What a value of an option may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OptionKind {
    /// A length of time between two bounds.
    Time {
        /// Least.
        min: Nanos,
        /// Greatest.
        max: Nanos,
    },
    /// A length of time between two bounds, or the word that stands for no fixed one.
    TimeOr {
        /// The word.
        word: &'static str,
        /// Least.
        min: Nanos,
        /// Greatest.
        max: Nanos,
    },
    /// A whole number between two bounds.
    Int {
        /// Least.
        min: i64,
        /// Greatest.
        max: i64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

/// An option that a policy knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionInfo {
    /// Its name.
    pub name: &'static str,
    /// What its value may be.
    pub kind: OptionKind,
    /// The value if it is not given, as it would be written.
    pub default: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
}

/// What a policy or a layer says of itself.
#[derive(Clone, Copy, Debug)]
pub struct About {
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
    /// What stands before the name where it is written.
    pub before: &'static str,
}

/// Words of a switch.
pub const SWITCH: OptionKind = OptionKind::Word(&["on", "off"]);

/// A policy string that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// It does not follow the grammar.
    #[error("`{text}` is not a policy: expected name[:option=value,…][+layer…], {what}")]
    Grammar {
        /// What was written.
        text: String,
        /// What is wrong.
        what: &'static str,
    },
    /// No policy has this name.
    #[error("there is no policy `{name}`; there are {known}")]
    UnknownPolicy {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// No layer has this name.
    #[error("there is no layer `{name}`; there are {known}")]
    UnknownLayer {
        /// The name.
        name: String,
        /// All names.
        known: String,
    },
    /// Two layers answer the same question.
    #[error("layers `{other}` and `{layer}` both say {question}: choose one")]
    SameQuestion {
        /// The second.
        layer: String,
        /// The first.
        other: String,
        /// The question.
        question: &'static str,
    },
    /// A layer on a policy that it cannot reach.
    #[error("layer `{layer}` cannot work with `{policy}`, which leaves scheduling to the host")]
    LayerOnHost {
        /// The layer.
        layer: String,
        /// The policy.
        policy: String,
    },
    /// The policy has no such option.
    #[error("policy `{policy}` has no option `{option}`; it has {known}")]
    UnknownOption {
        /// The policy.
        policy: String,
        /// The option.
        option: String,
        /// All its options.
        known: String,
    },
    /// The value does not fit.
    #[error("option `{option}` of policy `{policy}` cannot be `{value}`: expected {expected}")]
    Value {
        /// The policy.
        policy: String,
        /// The option.
        option: String,
        /// The value.
        value: String,
        /// What would fit.
        expected: String,
    },
}

impl OptionKind {
    /// What may be written, in words.
    #[must_use]
    pub fn expected(&self) -> String {
        match self {
            Self::Time { min, max } => format!("a time from {min} to {max}"),
            Self::TimeOr { word, min, max } => format!("{word} or a time from {min} to {max}"),
            Self::Int { min, max } => format!("a whole number from {min} to {max}"),
            Self::Word(words) => words.join(" or "),
        }
    }

    fn accepts(&self, value: &str) -> bool {
        match self {
            Self::Time { min, max } => value
                .parse::<Nanos>()
                .is_ok_and(|time| (*min..=*max).contains(&time)),
            Self::TimeOr { word, min, max } => {
                value == *word
                    || Self::Time {
                        min: *min,
                        max: *max,
                    }
                    .accepts(value)
            }
            Self::Int { min, max } => value
                .parse::<i64>()
                .is_ok_and(|int| (*min..=*max).contains(&int)),
            Self::Word(words) => words.contains(&value),
        }
    }
}

/// Values that fit one by one but not together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inconsistent {
    /// The option to change.
    pub option: &'static str,
    /// What would fit.
    pub expected: String,
}

/// Checked options of one policy: every option has a value that fits its kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    values: Vec<(&'static str, String)>,
}

impl Options {
    /// Checks what was written against what the policy knows and fills in the defaults.
    ///
    /// # Errors
    /// Names the first option or value that does not fit, and what would.
    pub fn check(given: &NamedOptions, known: &'static [OptionInfo]) -> Result<Self, SpecError> {
        let mut values: Vec<_> = known
            .iter()
            .map(|o| (o.name, o.default.to_owned()))
            .collect();
        for (name, value) in &given.options {
            let Some(place) = known.iter().position(|o| o.name == name) else {
                let names: Vec<_> = known.iter().map(|o| o.name).collect();
                return Err(SpecError::UnknownOption {
                    policy: given.name.clone(),
                    option: name.clone(),
                    known: if names.is_empty() {
                        "none".into()
                    } else {
                        names.join(", ")
                    },
                });
            };
            if !known[place].kind.accepts(value) {
                return Err(SpecError::Value {
                    policy: given.name.clone(),
                    option: name.clone(),
                    value: value.clone(),
                    expected: known[place].kind.expected(),
                });
            }
            values[place].1.clone_from(value);
        }
        Ok(Self { values })
    }

    /// The value of an option that the policy declares.
    ///
    /// # Panics
    /// If the policy asks for an option that it did not declare: a fault in its own file.
    #[must_use]
    pub fn word(&self, name: &str) -> &str {
        let found = self.values.iter().find(|(known, _)| *known == name);
        &found
            .unwrap_or_else(|| panic!("the policy did not declare option `{name}`"))
            .1
    }

    /// A length of time.
    #[must_use]
    pub fn time(&self, name: &str) -> Nanos {
        self.word(name).parse().expect("checked against its kind")
    }

    /// A length of time, or nothing if the word stands there.
    #[must_use]
    pub fn time_or_word(&self, name: &str) -> Option<Nanos> {
        self.word(name).parse().ok()
    }

    /// A whole number.
    #[must_use]
    pub fn int(&self, name: &str) -> i64 {
        self.word(name).parse().expect("checked against its kind")
    }

    /// Whether a switch is on.
    #[must_use]
    pub fn on(&self, name: &str) -> bool {
        self.word(name) == "on"
    }
}

impl FromStr for NamedOptions {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let grammar = |what| SpecError::Grammar {
            text: text.to_owned(),
            what,
        };
        let (name, options) = text
            .split_once(':')
            .map_or((text, None), |(n, o)| (n, Some(o)));
        let named = |s: &str| {
            !s.is_empty()
                && s.bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if !named(name) {
            return Err(grammar("a name of letters, digits and dashes is missing"));
        }
        let options = options
            .map(|list| {
                list.split(',')
                    .map(|item| item.split_once('='))
                    .collect::<Option<Vec<_>>>()
            })
            .map_or(Some(Vec::new()), |list| list)
            .ok_or_else(|| grammar("every option needs a value"))?;
        if !options
            .iter()
            .all(|(key, value)| named(key) && !value.is_empty())
        {
            return Err(grammar("every option needs a name and a value"));
        }
        let again = |place: usize| {
            options[..place]
                .iter()
                .any(|(key, _)| *key == options[place].0)
        };
        if (0..options.len()).any(again) {
            return Err(grammar("an option is given twice"));
        }
        Ok(Self {
            name: name.to_owned(),
            options: options
                .into_iter()
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .collect(),
        })
    }
}

impl FromStr for PolicySpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.trim().split('+').map(str::parse);
        let policy = parts.next().ok_or_else(|| SpecError::Grammar {
            text: text.to_owned(),
            what: "a name is missing",
        })??;
        Ok(Self {
            policy,
            layers: parts.collect::<Result<_, _>>()?,
        })
    }
}

impl TryFrom<String> for PolicySpec {
    type Error = SpecError;
    fn try_from(text: String) -> Result<Self, SpecError> {
        text.parse()
    }
}

impl From<PolicySpec> for String {
    fn from(spec: PolicySpec) -> Self {
        spec.to_string()
    }
}

impl fmt::Display for NamedOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        for (place, (key, value)) in self.options.iter().enumerate() {
            write!(f, "{}{key}={value}", if place == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.policy)?;
        self.layers
            .iter()
            .try_for_each(|layer| write!(f, "+{layer}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[OptionInfo] = &[
        OptionInfo {
            name: "slice",
            kind: OptionKind::Time {
                min: Nanos(1),
                max: Nanos::from_secs(1),
            },
            default: "3ms",
            help: "",
        },
        OptionInfo {
            name: "kpri",
            kind: SWITCH,
            default: "off",
            help: "",
        },
    ];

    #[test]
    fn a_policy_string_survives_being_read_and_written() {
        for text in [
            "rr",
            "fss:kpri=on,quantum=110ms",
            "eevdf:slice=3ms+proxy+delay:max=1ms",
        ] {
            assert_eq!(text.parse::<PolicySpec>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_policy_string_is_refused() {
        for text in [
            "",
            ":a=b",
            "fss:",
            "fss:kpri",
            "fss:kpri=",
            "+delay",
            "fss+",
            "f s s",
            "a:=1",
            "a:b=1,b=2",
        ] {
            assert!(text.parse::<PolicySpec>().is_err(), "{text}");
        }
    }

    #[test]
    fn unknown_options_and_values_are_refused_with_what_is_known() {
        let check = |text: &str| Options::check(&text.parse::<NamedOptions>().expect(text), KNOWN);
        let unknown = check("x:slcie=1ms")
            .expect_err("unknown option")
            .to_string();
        assert!(
            unknown.contains("slcie") && unknown.contains("slice, kpri"),
            "{unknown}"
        );
        let value = check("x:slice=2s").expect_err("too long").to_string();
        assert!(value.contains("1.00 s"), "{value}");
        assert!(check("x:kpri=maybe").is_err());
        let fine = check("x:kpri=on").expect("fits");
        assert!(fine.on("kpri"));
        assert_eq!(fine.time("slice"), Nanos::from_millis(3));
    }
}
