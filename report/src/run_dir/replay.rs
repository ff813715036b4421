//! Replay: the inputs of a recorded run, fed to a fresh dispatcher, must give the same effects and
//! events, one for one and in the same order.

use super::read::{LoadError, Recording};
use crate::about::about;
use std::collections::VecDeque;
use std::fmt;
use stealtime_scheduler::dispatcher::{ConfigError, Dispatcher, Output};
use stealtime_scheduler::effect::Effect;
use stealtime_scheduler::event::Event;
use stealtime_scheduler::input::Input;
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::Entry;

/// Inputs shown before the one at which a difference was found.
const CONTEXT: usize = 5;

/// Why a run cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The dispatcher does not accept what it was recorded with.
    #[error("this program cannot set up the dispatcher of the recorded run")]
    Config(#[from] ConfigError),
    /// Effects or events come before the first input.
    #[error("the stream does not begin with an input")]
    NoInput,
    /// An input names a vCPU or a core that the run does not have: the dispatcher cannot be asked.
    #[error(
        "input {number} of the stream names a vCPU or core that the run does not have: {input}"
    )]
    Stranger {
        /// Which, counted from 1.
        number: u64,
        /// The input.
        input: String,
    },
}

/// What a replay proved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// Inputs fed to the dispatcher.
    pub inputs: u64,
    /// Effects that were the same.
    pub effects: u64,
    /// Events that were the same.
    pub events: u64,
    /// The first difference; none if all was the same.
    pub difference: Option<Difference>,
}

/// Whether an effect or an event differs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// What the dispatcher asked for.
    Effect,
    /// What it told.
    Event,
}

/// The first difference between the recorded run and its replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Number of the input, counted from 1.
    pub input_number: u64,
    /// When it came.
    pub at: Nanos,
    /// The input.
    pub input: String,
    /// What differs.
    pub kind: Kind,
    /// The place among the effects or events of that input, counted from 1.
    pub place: usize,
    /// What was recorded there; none if the replay gives more.
    pub recorded: Option<String>,
    /// What the replay gives; none if more was recorded.
    pub replayed: Option<String>,
    /// The inputs before it, the oldest first.
    pub before: Vec<String>,
}

/// One input with what was recorded of it.
struct Step {
    at: Nanos,
    input: Input,
    effects: Vec<Effect>,
    events: Vec<Event>,
}

struct Player<'a> {
    recording: &'a Recording,
    dispatcher: Dispatcher,
    out: Output,
    before: VecDeque<String>,
    result: Replay,
}

/// Replays a recorded run up to its end or the first difference.
///
/// # Errors
/// If it cannot be read or set up. A difference is no error: it is the result.
pub fn replay(recording: &Recording) -> Result<Replay, ReplayError> {
    let mut player = Player {
        recording,
        dispatcher: Dispatcher::new(&recording.run.config)?,
        out: Output::default(),
        before: VecDeque::with_capacity(CONTEXT),
        result: Replay {
            inputs: 0,
            effects: 0,
            events: 0,
            difference: None,
        },
    };
    let mut step: Option<Step> = None;
    for entry in recording.entries()? {
        match (entry?, &mut step) {
            (Entry::Input(at, input), _) => {
                let next = Step {
                    at,
                    input,
                    effects: Vec::new(),
                    events: Vec::new(),
                };
                if let Some(done) = step.replace(next) {
                    player.play(&done)?;
                }
            }
            (Entry::Effect(effect), Some(step)) => step.effects.push(effect),
            (Entry::Event(event), Some(step)) => step.events.push(event),
            (_, None) => return Err(ReplayError::NoInput),
        }
        if player.result.difference.is_some() {
            return Ok(player.result);
        }
    }
    if let Some(last) = step {
        player.play(&last)?;
    }
    Ok(player.result)
}

impl Player<'_> {
    fn play(&mut self, step: &Step) -> Result<(), ReplayError> {
        let number = self.result.inputs + 1;
        if !self.knows(&step.input) {
            return Err(ReplayError::Stranger {
                number,
                input: format!("{:?}", step.input),
            });
        }
        self.out.clear();
        self.dispatcher.handle(step.at, step.input, &mut self.out);
        self.result.inputs = number;
        let effects = first_difference(&step.effects, &self.out.effects);
        let events = first_difference(&step.events, &self.out.events);
        self.result.effects += effects.as_ref().map_or(step.effects.len(), |d| d.place) as u64;
        self.result.events += events.as_ref().map_or(step.events.len(), |d| d.place) as u64;
        let found = effects
            .map(|found| (Kind::Effect, found))
            .or(events.map(|found| (Kind::Event, found)));
        if let Some((kind, found)) = found {
            self.result.difference = Some(Difference {
                input_number: number,
                at: step.at,
                input: format!("{:?}", step.input),
                kind,
                place: found.place + 1,
                recorded: found.recorded,
                replayed: found.replayed,
                before: self.before.iter().cloned().collect(),
            });
        }
        if self.before.len() == CONTEXT {
            self.before.pop_front();
        }
        self.before
            .push_back(format!("{} {:?}", Seconds(step.at), step.input));
        Ok(())
    }

    /// The dispatcher trusts its driver to name only what exists; a file deserves no such trust.
    fn knows(&self, input: &Input) -> bool {
        let vcpus = self.recording.run.config.vcpus.len();
        names_only_what_exists(input, vcpus, self.dispatcher.cores())
    }
}

/// Whether a dispatcher with so many vCPUs and cores can be given this input.
pub(crate) fn names_only_what_exists(input: &Input, vcpus: usize, cores: usize) -> bool {
    // A vCPU that does not exist, in an interrupt or a wake-up, is a guest's mistake, and the dispatcher
    // knows it.
    if matches!(input, Input::Interrupt { .. } | Input::GuestWake { .. }) {
        return true;
    }
    let (vcpu, core) = about(input);
    vcpu.is_none_or(|vcpu| vcpu.index() < vcpus) && core.is_none_or(|core| core.index() < cores)
}

struct Found {
    place: usize,
    recorded: Option<String>,
    replayed: Option<String>,
}

fn first_difference<T: PartialEq + fmt::Debug>(recorded: &[T], replayed: &[T]) -> Option<Found> {
    let longest = recorded.len().max(replayed.len());
    let place = (0..longest).find(|place| recorded.get(*place) != replayed.get(*place))?;
    let shown = |list: &[T]| list.get(place).map(|item| format!("{item:?}"));
    Some(Found {
        place,
        recorded: shown(recorded),
        replayed: shown(replayed),
    })
}

/// An instant in seconds, to the nanosecond.
struct Seconds(Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09} s",
            self.0.0 / 1_000_000_000,
            self.0.0 % 1_000_000_000
        )
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            inputs,
            effects,
            events,
            difference,
        } = self;
        match difference {
            None => write!(
                f,
                "The same: {inputs} inputs gave the same {effects} effects and {events} events."
            ),
            Some(difference) => write!(
                f,
                "Not the same: {effects} effects and {events} events were, up to input {inputs}.\n{difference}"
            ),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.before {
            writeln!(f, "  before    {line}")?;
        }
        writeln!(
            f,
            "  input {}   {} {}",
            self.input_number,
            Seconds(self.at),
            self.input
        )?;
        let kind = match self.kind {
            Kind::Effect => "effect",
            Kind::Event => "event",
        };
        let none = format!("no {kind} {}", self.place);
        let recorded = self.recorded.as_ref().unwrap_or(&none);
        let replayed = self.replayed.as_ref().unwrap_or(&none);
        writeln!(f, "  {kind} {} recorded   {recorded}", self.place)?;
        write!(f, "  {kind} {} replayed   {replayed}", self.place)
    }
}
