//! Layers: lock-awareness that works with every fair-share policy (`eevdf+delay`, `fss+proxy`).
//!
//! A policy knows nothing of locks. Between it and the cores the dispatcher asks three questions, and
//! a layer answers one of them:
//!
//! * [`Grace`]: may a preemption that is due be put off, because the vCPU is in a critical section?
//! * [`Chain`]: what becomes of the turn of a vCPU that waits for a lock?
//! * [`DirectedYield`]: to whom does a vCPU give its core that has spun for too long?
//!
//! At most one layer answers each, and those that answer different questions combine
//! (`eevdf+delay+proxy`). A layer is rules as data in one file; the mechanism is the dispatcher's.

pub mod chain;
pub mod delay;
pub mod hint;
pub mod pi;
pub mod proxy;
pub mod relay;
pub mod yieldto;

pub use chain::{Chain, Elsewhere, LoanEnds, Return};
pub use delay::{Grace, GraceEnds};
pub use yieldto::DirectedYield;

use crate::input::{GuestHints, MutexMode};
use crate::registry::{PolicyInfo, ScheduledBy};
use crate::spec::{About, OptionInfo, Options, PolicySpec, SpecError};

/// What a layer's file says of itself.
#[derive(Debug)]
pub struct LayerInfo {
    /// The name by which it is asked for, after a `+`.
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
    /// Makes one.
    pub build: fn(&Options) -> Layer,
}

impl LayerInfo {
    /// What it says of itself.
    #[must_use]
    pub const fn about(&self) -> About {
        About {
            name: self.name,
            summary: self.summary,
            rules: self.rules,
            source: self.source,
            quirks: self.quirks,
            options: self.options,
            before: "POLICY+",
        }
    }
}

/// A layer, by the question that it answers.
#[derive(Debug, Clone)]
pub enum Layer {
    /// May a preemption be put off?
    Grace(Grace),
    /// What becomes of the turn of a vCPU that waits?
    Chain(Chain),
    /// To whom does a spinner give its core?
    Spin(DirectedYield),
}

/// Every layer, in the order in which `stealtime policies` lists them.
pub const LAYERS: &[&LayerInfo] = &[
    &delay::INFO,
    &hint::INFO,
    &yieldto::INFO,
    &pi::INFO,
    &proxy::INFO,
    &relay::INFO,
];

/// The layers of a run.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    /// Whether preemptions are put off.
    pub grace: Option<Grace>,
    /// What becomes of the turn of a vCPU that waits.
    pub chain: Option<Chain>,
    /// To whom a spinner gives its core.
    pub spin: Option<DirectedYield>,
}

impl Layers {
    /// The layers of a policy string, on top of the policy given.
    ///
    /// # Errors
    /// If a layer or option is not known, if two layers answer the same question, or if the policy
    /// leaves scheduling to the host, which no layer can reach.
    pub fn of(spec: &PolicySpec, policy: &PolicyInfo) -> Result<Self, SpecError> {
        let mut layers = Self::default();
        let mut answered: Vec<(&str, &str)> = Vec::new();
        for given in &spec.layers {
            let info = find(&given.name)?;
            if policy.scheduled_by == ScheduledBy::Host {
                return Err(SpecError::LayerOnHost {
                    layer: info.name.to_owned(),
                    policy: policy.name.to_owned(),
                });
            }
            let options = Options::check(given, info.options)?;
            let layer = (info.build)(&options);
            let question = layer.question();
            if let Some((_, other)) = answered.iter().find(|(asked, _)| *asked == question) {
                return Err(SpecError::SameQuestion {
                    layer: info.name.to_owned(),
                    other: (*other).to_owned(),
                    question,
                });
            }
            answered.push((question, info.name));
            layers.put(layer);
        }
        Ok(layers)
    }

    fn put(&mut self, layer: Layer) {
        match layer {
            Layer::Grace(grace) => self.grace = Some(grace),
            Layer::Chain(chain) => self.chain = Some(chain),
            Layer::Spin(spin) => self.spin = Some(spin),
        }
    }

    /// Whether any of them looks at locks: the driver then tells of all that wait.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.grace.is_some() || self.chain.is_some() || self.spin.is_some()
    }

    /// How guests are to take their locks.
    #[must_use]
    pub fn hints(&self) -> GuestHints {
        let chain = self.chain.as_ref();
        let windows = [
            chain
                .filter(|chain| chain.lends)
                .and_then(|chain| chain.spin_window),
            self.spin.as_ref().map(DirectedYield::window),
        ];
        GuestHints {
            mutex: chain.map_or(MutexMode::Spin, |chain| chain.mutex),
            spin_window: windows.into_iter().flatten().min(),
        }
    }
}

impl Layer {
    const fn question(&self) -> &'static str {
        match self {
            Self::Grace(_) => "whether a preemption is put off",
            Self::Chain(_) => "what becomes of the turn of a vCPU that waits for a lock",
            Self::Spin(_) => "to whom a vCPU yields that spins",
        }
    }
}

/// Finds a layer by name.
///
/// # Errors
/// If there is none, with the names of all.
pub fn find(name: &str) -> Result<&'static LayerInfo, SpecError> {
    let found = LAYERS.iter().copied().find(|info| info.name == name);
    found.ok_or_else(|| {
        let names: Vec<_> = LAYERS.iter().map(|info| info.name).collect();
        SpecError::UnknownLayer {
            name: name.to_owned(),
            known: names.join(", "),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    fn layers(text: &str) -> Result<Layers, String> {
        let spec: PolicySpec = text.parse().expect("the grammar is kept");
        let info = registry::find(&spec.policy.name).expect("a policy");
        Layers::of(&spec, info).map_err(|error| error.to_string())
    }

    #[test]
    fn layers_that_answer_different_questions_combine() {
        let all = layers("eevdf+delay+yieldto+proxy").expect("three questions");
        assert!(all.grace.is_some() && all.chain.is_some() && all.spin.is_some());
        assert!(!layers("eevdf").expect("none").any());
    }

    #[test]
    fn two_answers_to_one_question_are_refused_and_so_is_a_layer_that_nobody_knows() {
        let twice = layers("rr+delay+hint").expect_err("both put preemptions off");
        assert!(twice.contains("delay") && twice.contains("hint"), "{twice}");
        let unknown = layers("rr+prxoy").expect_err("no such layer");
        assert!(
            unknown.contains("proxy"),
            "it says what there is: {unknown}"
        );
        let host = layers("host+delay").expect_err("out of reach");
        assert!(host.contains("host"), "{host}");
        let option = layers("rr+delay:moost=1ms").expect_err("no such option");
        assert!(option.contains("most"), "{option}");
    }

    #[test]
    fn hints_follow_the_layers() {
        assert_eq!(layers("rr").expect("none").hints(), GuestHints::default());
        let proxy = layers("rr+proxy").expect("one").hints();
        assert_eq!(proxy.mutex, MutexMode::HandOff);
        let spin = layers("rr+relay").expect("one").hints();
        assert_eq!(spin.mutex, MutexMode::Spin);
        assert!(spin.spin_window.is_some());
    }

    #[test]
    fn every_layer_accepts_its_own_defaults() {
        for info in LAYERS {
            assert!(
                layers(&format!("rr+{}", info.name)).is_ok(),
                "{}",
                info.name
            );
            for option in info.options {
                let text = format!("rr+{}:{}={}", info.name, option.name, option.default);
                assert!(layers(&text).is_ok(), "{text}");
            }
        }
    }
}
