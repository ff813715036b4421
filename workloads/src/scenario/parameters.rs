//! Parameters: places in a scenario's text that are filled in when it is read.
//!
//! The table `parameters` names them with their values. `${name}` stands for the value in every text of
//! the file; a text that is nothing else takes over the value's type, so that `count = "${vcpus}"` is a
//! number if the parameter is one. Who asks for the scenario may set other values.

use super::document::{Located, Table, Value};
use super::error::{Fault, Problem, nearest};
use super::step::{NAME, is_name};

/// What was asked for: the scenario, and its settings behind the last colon.
pub(super) fn settings(asked: &str) -> (&str, Vec<(&str, &str)>) {
    let Some((name, settings)) = asked.rsplit_once(':') else {
        return (asked, Vec::new());
    };
    let settings = settings.split(',').map(|one| one.split_once('='));
    match settings.collect() {
        Some(settings) => (name, settings),
        // A colon of a file's name.
        None => (asked, Vec::new()),
    }
}

/// The name of a scenario with what was set.
pub(super) fn shown(name: &str, settings: &[(&str, &str)]) -> String {
    let settings: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    if settings.is_empty() {
        name.to_owned()
    } else {
        format!("{name}:{}", settings.join(","))
    }
}

/// A parameter with its value.
struct Parameter {
    name: String,
    value: String,
    is_number: bool,
}

/// The text with all values filled in.
pub(super) fn fill_in(text: &str, settings: &[(&str, &str)]) -> Result<String, Fault> {
    let mut parameters = declared(text)?;
    for (name, value) in settings {
        set(&mut parameters, name, value)?;
    }
    let mut filled = text.to_owned();
    for Parameter {
        name,
        value,
        is_number,
    } in &parameters
    {
        if *is_number {
            filled = filled.replace(&format!("\"${{{name}}}\""), value);
        }
        filled = filled.replace(&format!("${{{name}}}"), value);
    }
    match filled.find("${") {
        None => Ok(filled),
        Some(at) => {
            let rest = &filled[at + 2..];
            let name = rest.split('}').next().unwrap_or(rest);
            // Nothing before it was longer or shorter in the file than here if it is there too.
            let at = text.find(&format!("${{{name}")).unwrap_or(at);
            Err(unknown(Some(at), name, &parameters))
        }
    }
}

fn declared(text: &str) -> Result<Vec<Parameter>, Fault> {
    let mut root = Table::root(text, "the scenario")?;
    let expected = "a table of names and values, as { section = \"100us\", vcpus = 4 }";
    let values = root.values("parameters", expected)?;
    let parameter = |(name, value): (Located<String>, Value)| {
        if !is_name(&name.value) {
            let problem = Problem::Value {
                key: "parameters".into(),
                written: format!("{:?}", name.value),
                expected: NAME.into(),
            };
            return Err(Fault::at(name.at, problem));
        }
        Ok(Parameter {
            name: name.value,
            is_number: matches!(value, Value::Number(_)),
            value: match value {
                Value::Number(number) => number.to_string(),
                Value::Text(text) => text,
            },
        })
    };
    values.into_iter().map(parameter).collect()
}

fn set(parameters: &mut [Parameter], name: &str, value: &str) -> Result<(), Fault> {
    let Some(parameter) = parameters.iter_mut().find(|one| one.name == name) else {
        return Err(unknown(None, name, parameters));
    };
    let fits = if parameter.is_number {
        value.parse::<u32>().is_ok()
    } else {
        // Anything else might end the text that it stands in.
        value.bytes().all(|byte| {
            byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\') || byte == b' '
        })
    };
    if !fits {
        let problem = Problem::Value {
            key: name.to_owned(),
            written: format!("{value:?}"),
            expected: if parameter.is_number {
                format!("a whole number, as {}", parameter.value)
            } else {
                format!("a text without quotes, as {}", parameter.value)
            },
        };
        return Err(Fault { at: None, problem });
    }
    value.clone_into(&mut parameter.value);
    Ok(())
}

fn unknown(at: Option<usize>, name: &str, parameters: &[Parameter]) -> Fault {
    let names = || parameters.iter().map(|one| &*one.name);
    let problem = Problem::UnknownKey {
        key: name.to_owned(),
        place: "the scenario's parameters",
        known: if parameters.is_empty() {
            "none: it declares none".into()
        } else {
            names().collect::<Vec<_>>().join(", ")
        },
        meant: nearest(name, names()),
    };
    Fault { at, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "parameters = { n = 4, lock = \"ticket\" }\n\
                        count = \"${n}\"\na = \"${lock}\"\nb = \"repeat ${n}\"\n";

    #[test]
    fn a_number_alone_is_a_number_and_a_value_within_a_text_is_part_of_it() {
        let filled = fill_in(TEXT, &[]).expect("in order");
        assert!(filled.ends_with("count = 4\na = \"ticket\"\nb = \"repeat 4\"\n"));
        let filled = fill_in(TEXT, &[("n", "7"), ("lock", "channel 2")]).expect("in order");
        assert!(filled.ends_with("count = 7\na = \"channel 2\"\nb = \"repeat 7\"\n"));
    }

    #[test]
    fn settings_stand_behind_the_last_colon_and_a_colon_alone_is_part_of_a_name() {
        assert_eq!(settings("lhp"), ("lhp", vec![]));
        let set = vec![("a", "1"), ("b", "2ms")];
        assert_eq!(settings("./x.toml:a=1,b=2ms"), ("./x.toml", set));
        assert_eq!(settings("./a:b.toml"), ("./a:b.toml", vec![]));
        assert_eq!(shown("lhp", &[("a", "1"), ("b", "2ms")]), "lhp:a=1,b=2ms");
    }

    #[test]
    fn what_is_not_declared_or_of_the_wrong_type_is_told() {
        let message = |settings: &[_]| {
            let fault = fill_in(TEXT, settings).expect_err("wrong");
            fault.in_file("t.toml", TEXT).to_string()
        };
        assert!(message(&[("lok", "mutex")]).contains("did you mean `lock`?"));
        assert!(message(&[("n", "many")]).contains("a whole number, as 4"));
        assert!(message(&[("lock", "a\"b")]).contains("a text without quotes"));
        let fault = fill_in("parameters = { n = 4 }\na = \"${m}\"\n", &[]).expect_err("wrong");
        assert_eq!(fault.at, Some(28));
    }
}
