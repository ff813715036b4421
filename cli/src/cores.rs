//! Host cores: reading `--cores`, and choosing when it is not given.
//!
//! By default a run takes the last cores that the process may use and leaves the first to the VMM's
//! own threads, which is the quietest set-up on a small machine.

use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// What `--cores` says: host core numbers, each once, in the order given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CoreList(pub Vec<u16>);

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is not a list of cores: expected numbers and ranges such as 0,2 or 0-3"
            )
        };
        let mut cores = Vec::new();
        let number = |text: &str| {
            let number: u64 = text.trim().parse().map_err(|_| wrong())?;
            u16::try_from(number)
                .map_err(|_| format!("there is no core {number}: {} is the last", u16::MAX))
        };
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cores.extend(first..=last);
        }
        for (place, core) in cores.iter().enumerate() {
            if cores[..place].contains(core) {
                return Err(format!("core {core} is listed twice"));
            }
        }
        Ok(Self(cores))
    }
}

/// Numbers in order, runs of them as ranges: `0-3,7`.
impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = &self.0[..];
        let mut separator = "";
        while let Some(&first) = rest.first() {
            let length = rest
                .iter()
                .zip(first..=u16::MAX)
                .take_while(|(core, expected)| *core == expected)
                .count();
            match length {
                1 => write!(f, "{separator}{first}")?,
                _ => write!(f, "{separator}{first}-{}", rest[length - 1])?,
            }
            rest = &rest[length..];
            separator = ",";
        }
        Ok(())
    }
}

/// The host cores that this process may use, in order.
///
/// # Errors
/// If the system does not say.
pub fn allowed() -> Result<CoreList> {
    let set = rustix::thread::sched_getaffinity(None)?;
    let numbers = 0..u16::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u16::MAX);
    Ok(CoreList(
        numbers
            .filter(|core| set.is_set(usize::from(*core)))
            .collect(),
    ))
}

/// The cores for a run on KVM.
///
/// # Errors
/// If a core asked for is not among the allowed ones, or there are fewer than the scenario asks for.
pub fn choose(asked: Option<&CoreList>, wanted: usize, allowed: &CoreList) -> Result<Vec<u16>> {
    if let Some(CoreList(cores)) = asked {
        for core in cores {
            if !allowed.0.contains(core) {
                bail!(
                    "core {core} does not exist or this process may not use it; it may use {allowed}"
                );
            }
        }
        return Ok(cores.clone());
    }
    let Some(first) = allowed.0.len().checked_sub(wanted) else {
        bail!(
            "the scenario asks for {wanted} host cores, and this process may use {} ({allowed}); \
             choose fewer with --cores, or use --backend sim",
            allowed.0.len()
        );
    };
    Ok(allowed.0[first..].to_vec())
}

/// The cores for a simulated run: any number of them exists.
#[must_use]
pub fn simulated(asked: Option<&CoreList>, wanted: usize) -> Vec<u16> {
    match asked {
        Some(CoreList(cores)) => cores.clone(),
        None => (0..u16::try_from(wanted).unwrap_or(u16::MAX)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CoreList {
        text.parse().expect(text)
    }

    #[test]
    fn a_list_of_cores_survives_being_read_and_written() {
        for text in ["0", "0-3", "1,3", "7,0-2,5"] {
            assert_eq!(list(text).to_string(), text);
        }
        assert_eq!(list("0,1,2").to_string(), "0-2");
    }

    #[test]
    fn what_is_no_list_of_cores_is_refused() {
        for text in ["", "a", "3-1", "1,", "-1", "0,0", "0-2,1", "99999"] {
            assert!(text.parse::<CoreList>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_last_cores_are_taken_unless_some_are_named() {
        let allowed = list("0-3");
        assert_eq!(choose(None, 1, &allowed).expect("enough"), [3]);
        assert_eq!(choose(None, 2, &allowed).expect("enough"), [2, 3]);
        assert_eq!(choose(Some(&list("0")), 1, &allowed).expect("there"), [0]);
    }

    #[test]
    fn a_core_that_is_not_there_is_an_error_that_names_those_that_are() {
        let missing = choose(Some(&list("1,9")), 1, &list("0-1")).expect_err("no core 9");
        assert!(missing.to_string().contains("core 9"), "{missing}");
        assert!(missing.to_string().contains("0-1"), "{missing}");
        let many = choose(None, 3, &list("0-1")).expect_err("only two");
        assert!(many.to_string().contains("3 host cores"), "{many}");
    }
}
