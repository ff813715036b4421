//! `yieldto`: a vCPU that spins for too long gives its core to a sibling that may hold the lock.

use super::{Layer, LayerInfo};
use crate::ids::VcpuId;
use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// How a spinner chooses to whom it yields, and what is remembered of earlier choices.
#[derive(Clone, Debug)]
pub struct DirectedYield {
    window: Nanos,
    in_kernel: bool,
    sticky: bool,
    /// By VM: the sibling boosted last.
    last_boosted: Vec<usize>,
    /// By vCPU.
    seats: Vec<Seat>,
}

/// What is remembered of a vCPU.
#[derive(Clone, Copy, Default, Debug)]
struct Seat {
    /// It has yielded by directed yield and has not run since.
    in_spin_loop: bool,
    eligible: bool,
}

/// A sibling of a spinner, as the choice sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sibling {
    /// Who.
    pub vcpu: VcpuId,
    /// Runnable and off core.
    pub ready: bool,
    /// It was in a critical section, or held a lock, when it left its core: in kernel mode, for a
    /// guest that has one.
    pub in_kernel: bool,
    /// An interrupt waits for it.
    pub interrupted: bool,
}

impl DirectedYield {
    /// How long a vCPU spins before it says so.
    #[must_use]
    pub const fn window(&self) -> Nanos {
        self.window
    }

    /// Whether a spinner that has yielded stays off core as long as the one that it yielded to is on
    /// one.
    #[must_use]
    pub const fn sticky(&self) -> bool {
        self.sticky
    }

    /// The sibling to yield to, if there is one: round robin from behind the one boosted last.
    /// `siblings` are all vCPUs of the VM with number `vm`, the spinner `me` (a place in it) among
    /// them.
    pub fn target(&mut self, vm: usize, me: usize, siblings: &[Sibling]) -> Option<VcpuId> {
        if siblings.len() < 2 {
            return None;
        }
        if self.last_boosted.len() <= vm {
            self.last_boosted.resize(vm + 1, 0);
        }
        let start = self.last_boosted[vm] + 1;
        for step in 0..siblings.len() {
            let place = (start + step) % siblings.len();
            let sibling = siblings[place];
            if place == me || !sibling.ready {
                continue;
            }
            if self.in_kernel && !sibling.in_kernel && !sibling.interrupted {
                continue;
            }
            if self.is_eligible(sibling.vcpu) {
                self.last_boosted[vm] = place;
                return Some(sibling.vcpu);
            }
        }
        None
    }

    /// A vCPU that is itself off core for spinning is considered every second time.
    fn is_eligible(&mut self, vcpu: VcpuId) -> bool {
        let seat = self.seat(vcpu);
        let eligible = !seat.in_spin_loop || seat.eligible;
        if seat.in_spin_loop {
            seat.eligible = !seat.eligible;
        }
        eligible
    }

    /// The vCPU leaves its core by directed yield.
    pub fn yields(&mut self, vcpu: VcpuId) {
        self.seat(vcpu).in_spin_loop = true;
    }

    /// The vCPU has a core.
    pub fn runs(&mut self, vcpu: VcpuId) {
        *self.seat(vcpu) = Seat::default();
    }

    fn seat(&mut self, vcpu: VcpuId) -> &mut Seat {
        if self.seats.len() <= vcpu.index() {
            self.seats.resize(vcpu.index() + 1, Seat::default());
        }
        &mut self.seats[vcpu.index()]
    }
}

pub(crate) const INFO: LayerInfo = LayerInfo {
    name: "yieldto",
    summary: "directed yield: a vCPU that spins for too long gives its core to a preempted sibling",
    rules: &[
        "A vCPU that has spun for `window` says so (the stand-in for a pause-loop exit). It goes through its siblings, round robin from behind the one boosted last.",
        "Skipped: itself; who is not runnable, or is on a core; with `in-kernel=on` who neither held a lock nor was in a critical section when it was preempted, unless an interrupt waits for it.",
        "A sibling that has itself yielded by spinning and has not run since is considered every second time only.",
        "The first that is left gets the core, as if the policy had picked it; the spinner goes to the end of the queue by the policy's own rule for yields. If nobody is left the spinner goes on.",
        "`sticky=on` (the debooster): the spinner stays off core while the one it yielded to is on one, so that the two do not preempt each other.",
    ],
    source: "Linux KVM, kvm_vcpu_on_spin and yield_to; the debooster after the patches proposed in 2025",
    quirks: &[
        "It guesses: with `in-kernel=off` the boosted sibling is as likely another spinner.",
        "With `sticky=off` the boost lasts one decision: the next wake-up or tick may take it back.",
        "`sticky=on` keeps off the one that yielded, and nobody else: in a section that outlasts a slice the boost is lost to others all the same, as scenario `boost-evaporates` shows; with `delay` it lasts as long as `most` allows.",
        "The policy has no say in whom a core goes to. Two that hold locks, and spin for a third, can hand it to and fro for as long as they spin, past everybody else; Linux's pick passes over the one yielded to where that were too unfair.",
        "The window does not grow and shrink as the processors' pause-loop windows do.",
    ],
    options: &[
        OptionInfo {
            name: "window",
            kind: OptionKind::Time {
                min: Nanos::from_micros(1),
                max: Nanos::from_secs(1),
            },
            default: "250us",
            help: "how long a vCPU spins, in its own running time, before it says so",
        },
        OptionInfo {
            name: "in-kernel",
            kind: SWITCH,
            default: "on",
            help: "yield only to siblings that held a lock or have an interrupt waiting",
        },
        OptionInfo {
            name: "sticky",
            kind: SWITCH,
            default: "off",
            help: "a spinner stays off core while the one that it yielded to is on one",
        },
    ],
    build: |options| {
        Layer::Spin(DirectedYield {
            window: options.time("window"),
            in_kernel: options.on("in-kernel"),
            sticky: options.on("sticky"),
            last_boosted: Vec::new(),
            seats: Vec::new(),
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(in_kernel: bool) -> DirectedYield {
        DirectedYield {
            window: Nanos::from_micros(250),
            in_kernel,
            sticky: false,
            last_boosted: Vec::new(),
            seats: Vec::new(),
        }
    }

    fn siblings(ready: [bool; 4]) -> Vec<Sibling> {
        let sibling = |(vcpu, ready)| Sibling {
            vcpu: VcpuId(vcpu),
            ready,
            in_kernel: true,
            interrupted: false,
        };
        (0..).zip(ready).map(sibling).collect()
    }

    #[test]
    fn candidates_come_round_robin_from_behind_the_last_boosted() {
        let mut layer = layer(true);
        layer.last_boosted = vec![2];
        let everybody = siblings([true; 4]);
        assert_eq!(layer.target(0, 0, &everybody), Some(VcpuId(3)));
        assert_eq!(layer.target(0, 0, &everybody), Some(VcpuId(1)), "0 spins");
        layer.last_boosted = vec![2];
        assert_eq!(
            layer.target(0, 0, &siblings([true, false, false, false])),
            None
        );
        let only_1 = siblings([false, true, false, false]);
        assert_eq!(layer.target(0, 0, &only_1), Some(VcpuId(1)));
        assert_eq!(
            layer.target(0, 0, &everybody),
            Some(VcpuId(2)),
            "next starts at 2"
        );
    }

    #[test]
    fn one_preempted_outside_any_section_is_skipped_unless_an_interrupt_waits_for_it() {
        let mut layer = layer(true);
        let mut all = siblings([false, true, false, false]);
        all[1].in_kernel = false;
        assert_eq!(layer.target(0, 0, &all), None);
        all[1].interrupted = true;
        assert_eq!(layer.target(0, 0, &all), Some(VcpuId(1)));
    }

    #[test]
    fn one_that_is_off_core_for_spinning_is_considered_every_second_time() {
        let mut layer = layer(true);
        let all = siblings([false, true, false, false]);
        layer.yields(VcpuId(1));
        assert_eq!(layer.target(0, 0, &all), None);
        assert_eq!(layer.target(0, 0, &all), Some(VcpuId(1)));
        assert_eq!(layer.target(0, 0, &all), None);
        layer.runs(VcpuId(1));
        assert_eq!(layer.target(0, 0, &all), Some(VcpuId(1)));
    }

    #[test]
    fn a_vm_of_one_vcpu_yields_to_nobody() {
        let alone = &siblings([true; 4])[..1];
        assert_eq!(layer(false).target(0, 0, alone), None);
    }
}
