//! A trace as one JSON object a line (`docs/trace-format.md`).

use super::{Form, Item, What};
use crate::kind::{Kind, detail};
use crate::names::Names;
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use stealtime_scheduler::event::{EventKind, Standing, Waits, WakeSource};
use stealtime_scheduler::ids::VcpuId;

/// One JSON object a line.
#[derive(Debug)]
pub struct JsonLines<W> {
    names: Names,
    to: W,
}

#[derive(Serialize)]
struct Line<'a> {
    at_ns: u64,
    core: Option<u16>,
    vm: Option<&'a str>,
    vcpu: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_lock: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest_lock: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    donor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    behind: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guest: Option<Guest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    standing: Option<Standing>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from_core: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    happened_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<String>,
}

/// What a guest says of its own locks.
#[derive(Serialize)]
struct Guest {
    held: u16,
    critical: u16,
    waits_for: Option<String>,
    in_line: bool,
}

impl<W: Write> JsonLines<W> {
    /// A trace of a run with these names.
    pub const fn new(names: Names, to: W) -> Self {
        Self { names, to }
    }
}

impl<'a> Line<'a> {
    fn new(item: &Item, names: &'a Names) -> Self {
        let parts = item.vcpu.map(|vcpu| names.parts(vcpu));
        let mut line = Self {
            at_ns: item.at.0,
            core: item.core.and_then(|core| names.core(core)),
            vm: parts.map(|(vm, _)| vm),
            vcpu: parts.map(|(_, vcpu)| vcpu),
            event: None,
            detail: None,
            by: None,
            host_lock: None,
            owner: None,
            guest_lock: None,
            donor: None,
            to: None,
            behind: None,
            guest: None,
            standing: None,
            from_core: None,
            delay_ns: None,
            happened_ns: None,
            input: None,
            effect: None,
        };
        match &item.what {
            What::Event(event) => line.event(&event.kind, names),
            What::Input(input) => line.input = Some(format!("{input:?}")),
            What::Effect(effect) => line.effect = Some(format!("{effect:?}")),
        }
        line
    }

    fn event(&mut self, kind: &EventKind, names: &'a Names) {
        let name = |vcpu: VcpuId| names.vcpu(vcpu);
        self.event = Some(Kind::of(kind).name());
        self.detail = detail(kind, names);
        match *kind {
            EventKind::Woken(WakeSource::Interrupt(from))
            | EventKind::InterruptRaised { from, .. } => self.by = from.map(name),
            EventKind::Woken(WakeSource::HostLock(from) | WakeSource::GuestLock(from)) => {
                self.by = Some(name(from));
            }
            EventKind::Blocked(Waits::GuestLock(lock))
            | EventKind::GuestOwner { lock, .. }
            | EventKind::SpunTooLong(lock) => self.guest_lock = Some(names.guest_lock(lock)),
            EventKind::Borrows { donor, .. } => self.donor = Some(name(donor)),
            EventKind::YieldedTo(to) => self.to = Some(name(to)),
            EventKind::SetAside { behind } => self.behind = behind.map(name),
            EventKind::Deadlock { owner } => self.owner = Some(name(owner)),
            EventKind::Blocked(Waits::HostLock(lock, owner)) => {
                self.host_lock = Some(names.host_lock(lock));
                self.owner = Some(name(owner));
            }
            EventKind::HostLockTaken(lock) | EventKind::HostLockReleased(lock) => {
                self.host_lock = Some(names.host_lock(lock));
            }
            EventKind::Locks {
                held,
                critical,
                waits_for,
                in_line,
            } => {
                self.guest = Some(Guest {
                    held,
                    critical,
                    waits_for: waits_for.map(|lock| names.guest_lock(lock)),
                    in_line,
                });
            }
            EventKind::Standing(standing) => self.standing = Some(standing),
            EventKind::Migrated { from, .. } => self.from_core = names.core(from),
            EventKind::HostDelay(delay) => self.delay_ns = Some(delay.0),
            EventKind::InterruptsTaken { at } => self.happened_ns = Some(at.0),
            _ => {}
        }
    }
}

impl<W: Write> Form for JsonLines<W> {
    fn item(&mut self, item: &Item, shown: bool) -> io::Result<()> {
        if !shown {
            return Ok(());
        }
        serde_json::to_writer(&mut self.to, &Line::new(item, &self.names))?;
        self.to.write_all(b"\n")
    }

    fn end(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// A line that has everything, though no item does.
    fn everything() -> Line<'static> {
        let name = Some("x");
        let text = || Some(String::new());
        Line {
            at_ns: 0,
            core: None,
            vm: None,
            vcpu: None,
            event: name,
            detail: Some(Cow::Borrowed("x")),
            by: name,
            host_lock: name,
            owner: name,
            guest_lock: text(),
            donor: name,
            to: name,
            behind: name,
            guest: Some(Guest {
                held: 0,
                critical: 0,
                waits_for: None,
                in_line: false,
            }),
            standing: Some(Standing::default()),
            from_core: Some(0),
            delay_ns: Some(0),
            happened_ns: Some(0),
            input: text(),
            effect: text(),
        }
    }

    /// What stands between backquotes.
    fn quoted(text: &str) -> BTreeSet<String> {
        let parts = text.split('`').skip(1).step_by(2);
        parts.map(str::to_owned).collect()
    }

    #[test]
    fn the_page_has_every_key() {
        let page = include_str!("../../../docs/trace-format.md");
        let (_, section) = page.split_once("--format json`").expect("a section");
        let rows = section.lines().skip_while(|line| !line.starts_with('|'));
        let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<_>> = rows.map(|row| row.split('|').collect()).collect();
        let line = serde_json::to_value(everything()).expect("JSON");
        let keys = |of: &serde_json::Value| -> BTreeSet<String> {
            let object = of.as_object().expect("an object");
            object.keys().cloned().collect()
        };
        let documented: BTreeSet<_> = rows.iter().flat_map(|row| quoted(row[1])).collect();
        assert_eq!(documented, keys(&line));
        for part in ["guest", "standing"] {
            let row = rows.iter().find(|row| quoted(row[1]).contains(part));
            let documented = quoted(row.expect("it is there")[2]);
            assert_eq!(documented, keys(&line[part]), "{part}");
        }
    }
}
