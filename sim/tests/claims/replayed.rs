//! A run's inputs, fed to a fresh dispatcher, give the same effects and events.

use crate::plans::Done;
use stealtime_scheduler::dispatcher::{Dispatcher, Output};
use stealtime_workloads::run::{Entry, Plan};

/// Asserts it for a run of this plan.
pub(crate) fn check(plan: &Plan, done: &Done) {
    let mut dispatcher = Dispatcher::new(&plan.config()).expect("it ran");
    let mut entries = done.entries.iter().peekable();
    let (mut out, mut recorded) = (Output::default(), Output::default());
    while let Some(entry) = entries.next() {
        let Entry::Input(at, input) = entry else {
            panic!("{entry:?} belongs to no input");
        };
        recorded.clear();
        while let Some(came) = entries.next_if(|next| !matches!(next, Entry::Input(..))) {
            match came {
                Entry::Effect(effect) => recorded.effects.push(*effect),
                Entry::Event(event) => recorded.events.push(*event),
                Entry::Input(..) => {}
            }
        }
        out.clear();
        dispatcher.handle(*at, *input, &mut out);
        assert_eq!(out.effects, recorded.effects, "{input:?} at {at}");
        assert_eq!(out.events, recorded.events, "{input:?} at {at}");
    }
}
