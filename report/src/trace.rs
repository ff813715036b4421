//! The events of a kept run, one after the other, as a kernel's trace is dumped.
//!
//! Everything is written while the stream is read: what is held in memory does not grow with the
//! run, only with the number of its vCPUs. Three forms: lines to read ([`Text`]), one JSON object a
//! line ([`JsonLines`]), and a document for trace viewers ([`Chrome`]).

mod chrome;
mod filter;
mod json;
mod place;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub use chrome::Chrome;
pub use filter::Filter;
pub use json::JsonLines;
pub use text::Text;

use crate::mask::Mask;
use crate::run_dir::LoadError;
use place::Places;
use std::io;
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::Event;
use stealtime_scheduler::ids::{CoreId, VcpuId};
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Entry;
pub(crate) use words::moment;

/// One item of the stream, with when and where it happened.
#[derive(Clone, Copy, Debug)]
pub struct Item {
    /// When.
    pub at: Nanos,
    /// The core that it is about: its own, or that of its vCPU. None if that is on none.
    pub core: Option<CoreId>,
    /// The vCPU that it is about. None if it is about all.
    pub vcpu: Option<VcpuId>,
    /// What.
    pub what: What,
}

/// What an item is.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// The dispatcher told this.
    Event(Event),
    /// The dispatcher was told this.
    Input(Input),
    /// The dispatcher asked for this.
    Effect(Effect),
}

impl What {
    const fn mask(&self) -> Mask {
        match self {
            Self::Event(event) => Mask::of(&event.kind),
            Self::Input(_) => Mask::INPUTS,
            Self::Effect(_) => Mask::EFFECTS,
        }
    }
}

/// A form in which a trace is written.
pub trait Form {
    /// Takes the next item, all of them in order; `shown` tells whether it was asked for.
    ///
    /// # Errors
    /// If it cannot be written.
    fn item(&mut self, item: &Item, shown: bool) -> io::Result<()>;

    /// Writes the rest.
    ///
    /// # Errors
    /// If it cannot be written.
    fn end(&mut self) -> io::Result<()>;
}

/// Why a trace ended early.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The run cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The trace cannot be written.
    #[error("the trace cannot be written")]
    Write(#[from] io::Error),
}

/// What of a stream was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Written {
    /// How many items.
    pub items: u64,
    /// When the first and the last item happened that were looked at, written or not. None if there was none.
    pub looked_at: Option<(Nanos, Nanos)>,
}

/// Writes the items of a stream that a filter lets through. Ends at the first item behind its end.
///
/// # Errors
/// If the stream cannot be read or the form not be written.
pub fn trace(
    entries: impl Iterator<Item = Result<Entry, LoadError>>,
    filter: &Filter,
    form: &mut dyn Form,
) -> Result<Written, TraceError> {
    let mut written = Written::default();
    let mut places = Places::default();
    let mut at = Nanos::ZERO;
    for entry in entries {
        let item = match entry? {
            Entry::Input(now, input) => {
                at = now;
                places.input(at, input)
            }
            Entry::Effect(effect) => places.effect(at, effect),
            Entry::Event(event) => {
                at = event.at;
                places.event(event)
            }
        };
        let first = written.looked_at.map_or(at, |(first, _)| first);
        written.looked_at = Some((first, at));
        if at > filter.to {
            break;
        }
        let shown = filter.admits(&item);
        written.items += u64::from(shown);
        form.item(&item, shown)?;
    }
    form.end()?;
    Ok(written)
}
