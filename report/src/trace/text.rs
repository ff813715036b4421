//! A trace as lines to read: when, how long after the line before, on which core, who, what.

use super::words::Words;
use super::{Form, Item};
use crate::names::Names;
use std::io::{self, Write};
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::time::Nanos;

/// The least and the greatest width of the column of vCPUs.
const VCPU_WIDTH: (usize, usize) = (8, 32);

/// In place of a core or vCPU that there is not.
const NONE: &str = "-";

/// Lines to read.
#[derive(Debug)]
pub struct Text<W> {
    names: Names,
    to: W,
    width: usize,
    last: Option<Nanos>,
}

impl<W: Write> Text<W> {
    /// A trace of a run with these names.
    pub fn new(names: Names, to: W) -> Self {
        let ids = (0..names.vcpus()).filter_map(|vcpu| u32::try_from(vcpu).ok());
        let longest = ids.map(|id| names.vcpu(VcpuId(id)).chars().count()).max();
        let width = longest.unwrap_or(0).clamp(VCPU_WIDTH.0, VCPU_WIDTH.1);
        Self {
            names,
            to,
            width,
            last: None,
        }
    }

    fn head(&mut self) -> io::Result<()> {
        let width = self.width;
        writeln!(
            self.to,
            "{:>15} {:>9} {:>5}  {:width$}  event",
            "time (s)", "after", "core", "vCPU"
        )
    }
}

impl<W: Write> Form for Text<W> {
    fn item(&mut self, item: &Item, shown: bool) -> io::Result<()> {
        if !shown {
            return Ok(());
        }
        let after = match self.last.replace(item.at) {
            None => {
                self.head()?;
                String::new()
            }
            Some(last) => item.at.since(last).to_string(),
        };
        let core = item.core.and_then(|core| self.names.core(core));
        let core = core.map_or_else(|| NONE.to_owned(), |core| core.to_string());
        let vcpu = item.vcpu.map_or(NONE, |vcpu| self.names.vcpu(vcpu));
        let (seconds, nanos) = (item.at.0 / 1_000_000_000, item.at.0 % 1_000_000_000);
        let (width, words) = (self.width, Words(&item.what, &self.names));
        writeln!(
            self.to,
            "{seconds:>5}.{nanos:09} {after:>9} {core:>5}  {vcpu:width$}  {words}"
        )
    }

    fn end(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
