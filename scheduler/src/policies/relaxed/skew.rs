//! Skew among the vCPUs of a VM: who is stopped, and who may run again.

use super::fair::{Place, Relaxed};
use crate::ids::{CoreId, VcpuId};
use crate::spec::Options;
use crate::time::Nanos;

/// Which of the vendor's schedulers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Generation {
    Relaxed,
    Esx2,
}

/// What a vCPU's progress is set against.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reference {
    Slowest,
    Mean,
}

/// When to stop and when to release.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) generation: Generation,
    reference: Reference,
    costop: i64,
    costart: i64,
    /// Whether a skew that equals the limit is enough.
    at_least: bool,
}

fn signed(time: Nanos) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

impl Rules {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            generation: match options.word("generation") {
                "esx2" => Generation::Esx2,
                _ => Generation::Relaxed,
            },
            reference: match options.word("skew") {
                "mean" => Reference::Mean,
                _ => Reference::Slowest,
            },
            costop: signed(options.time("costop")),
            costart: signed(options.time("costart")),
            at_least: options.word("compare") == "at-least",
        }
    }

    /// Whether anybody is ever stopped.
    pub(super) const fn is_on(&self) -> bool {
        self.costop > 0
    }

    fn passes(&self, skew: i64) -> bool {
        skew > self.costop || self.at_least && skew == self.costop
    }

    /// Whether a skew of ESX 2, which is never negative, is too much.
    pub(super) fn is_too_much(&self, skew: Nanos) -> bool {
        self.passes(signed(skew))
    }

    fn releases(&self, skew: i64) -> bool {
        skew < self.costart || skew <= 0
    }
}

impl Relaxed {
    /// The runnable vCPUs of a VM with their progress.
    fn runnable(&self, now: Nanos, vm: usize) -> impl Iterator<Item = (VcpuId, Nanos)> {
        let all = self.vms[vm].members.iter().copied();
        let runnable = all.filter(|vcpu| self.vcpus[vcpu.index()].place != Place::Away);
        runnable.map(move |vcpu| (vcpu, self.vcpus[vcpu.index()].progress.at(now)))
    }

    /// Whether anybody in the VM may have to be stopped or released. It is told without a look at those
    /// that wait: most polls find that all siblings are close together.
    fn is_uneven(&self, now: Nanos, index: usize) -> bool {
        let vm = &self.vms[index];
        let on = vm.on_cores.iter();
        let made = on.map(|vcpu| self.vcpus[vcpu.index()].progress.at(now));
        let most = made.fold(vm.most, Nanos::max);
        let slowest = self.slowest(now, index).unwrap_or(most);
        vm.stopped > 0 || self.rules.passes(signed(most) - signed(slowest))
    }

    /// The least progress of a runnable vCPU of the VM.
    pub(super) fn slowest(&self, now: Nanos, vm: usize) -> Option<Nanos> {
        let vm = &self.vms[vm];
        let waiting = vm.waiting.first().map(|(made, _)| made);
        let on = vm.on_cores.iter();
        let made = on.map(|vcpu| self.vcpus[vcpu.index()].progress.at(now));
        made.chain(waiting).min()
    }

    /// Skew of each runnable vCPU of the VM: progress − reference.
    fn skews(&self, now: Nanos, vm: usize) -> Vec<(VcpuId, i64)> {
        let all: Vec<_> = self
            .runnable(now, vm)
            .map(|(vcpu, made)| (vcpu, signed(made)))
            .collect();
        let made = || all.iter().map(|(_, made)| *made);
        let reference = match self.rules.reference {
            Reference::Slowest => made().min().unwrap_or(0),
            Reference::Mean => {
                let number = i64::try_from(all.len().max(1)).unwrap_or(i64::MAX);
                // Half a nanosecond here or there does not matter; the sum of many might overflow.
                let least = made().min().unwrap_or(0);
                least + made().map(|made| made - least).sum::<i64>() / number
            }
        };
        let skew = |(vcpu, made)| (vcpu, made - reference);
        all.into_iter().map(skew).collect()
    }

    /// Stops who is too far ahead in the VM, releases who is no longer. Adds the cores on which somebody
    /// is to leave.
    pub(super) fn even_out(&mut self, now: Nanos, vm: usize, cores: &mut Vec<CoreId>) {
        if self.vms[vm].members.len() < 2 || !self.is_uneven(now, vm) {
            return;
        }
        let most = self.runnable(now, vm).map(|(_, made)| made).max();
        self.vms[vm].most = most.unwrap_or(Nanos::ZERO);
        for (vcpu, skew) in self.skews(now, vm) {
            let stopped = self.vcpus[vcpu.index()].stopped;
            if !stopped && self.rules.passes(skew) {
                cores.extend(self.stop(vcpu));
            } else if stopped && self.rules.releases(skew) {
                cores.extend(self.release(vcpu));
            }
        }
    }

    /// Stops a runnable vCPU. The answer is the core that it is on.
    pub(super) fn stop(&mut self, vcpu: VcpuId) -> Option<CoreId> {
        self.set_stopped(vcpu, true);
        let (vm, place) = (self.vcpus[vcpu.index()].vm, self.vcpus[vcpu.index()].place);
        self.queue.remove(vcpu);
        let Place::On(core) = place else {
            return None;
        };
        self.cores[core.index()].handed_to = Some(vm);
        Some(core)
    }

    /// A stopped vCPU may run again. The answer is a core on which it goes before who is there.
    fn release(&mut self, vcpu: VcpuId) -> Option<CoreId> {
        self.set_stopped(vcpu, false);
        // If it has not left its core yet, it will be queued when it does.
        if self.vcpus[vcpu.index()].place != Place::Waits {
            return None;
        }
        self.queue_up(vcpu, false);
        let core = self.considered(vcpu);
        let on = self.cores[core.index()].running?;
        self.claims(core, on, vcpu).then_some(core)
    }

    /// For a core from which a vCPU was stopped within its quantum: of its queued siblings the one that
    /// has made the least progress, the lower number among equals.
    pub(super) fn laggard_for(&self, now: Nanos, core: CoreId) -> Option<VcpuId> {
        let core = &self.cores[core.index()];
        let vm = core.handed_to.filter(|_| core.until > now)?;
        let members = self.vms[vm].members.iter().copied();
        let queued = members.filter(|vcpu| self.queue.contains(*vcpu));
        queued.min_by_key(|vcpu| (self.vcpus[vcpu.index()].progress.at(now), *vcpu))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{PreemptReason, Waits};
    use crate::ids::VmId;
    use crate::policy::{Enqueue, Mode, Pick, Policy, VcpuParams};
    use crate::registry;
    use crate::testing::us;
    use proptest::prelude::*;

    /// One of the calls that may come for the vCPU where it is.
    fn call(policy: &mut Relaxed, now: Nanos, vcpu: VcpuId, which: u8) {
        match policy.vcpus[vcpu.index()].place {
            Place::Away => {
                let _ = policy.enqueue(now, vcpu, Enqueue::Wake);
            }
            Place::Waits if which == 0 => policy.remove(now, vcpu),
            Place::Waits => {
                let mut cores = (0..).map(CoreId).zip(&policy.cores);
                let idle = cores.find(|(_, core)| core.running.is_none());
                if let Some((core, _)) = idle
                    && let Pick::Run(vcpu, _) = policy.pick(now, core)
                {
                    policy.entered(now, core, vcpu);
                }
            }
            Place::On(core) => match which {
                0 => policy.block(now, core, vcpu, Waits::Idle),
                1 => policy.block(now, core, vcpu, Waits::Host),
                2 => policy.mode(now, vcpu, Mode::Hypervisor),
                3 => policy.mode(now, vcpu, Mode::Guest),
                _ => {
                    let why = Enqueue::Preempted(core, PreemptReason::SliceEnd);
                    let _ = policy.enqueue(now, vcpu, why);
                }
            },
        }
    }

    proptest! {
        /// Two VMs of three on two cores.
        #[test]
        fn what_is_known_of_a_vm_without_a_walk_is_what_a_walk_finds(
            spec in proptest::sample::select(vec!["relaxed", "relaxed:skew=mean", "relaxed:generation=esx2"]),
            calls in proptest::collection::vec((0..6_u32, 0..8_u8, 1..2_000_u64), 1..400),
        ) {
            let (_, options) = registry::check(&spec.parse().expect("a policy")).expect("fits");
            let mut policy = Relaxed::new(&options, 2);
            for vcpu in (0..6).map(VcpuId) {
                let vm = VmId(u16::from(vcpu.0 > 2));
                let params = VcpuParams { siblings: 3, ..VcpuParams::plain(vm) };
                policy.declare(vcpu, &params).expect("understood");
            }
            let mut now = Nanos::ZERO;
            for (vcpu, which, passed) in calls {
                now += us(passed);
                call(&mut policy, now, VcpuId(vcpu), which);
                for vm in 0..2 {
                    let made = policy.runnable(now, vm).map(|(_, made)| made);
                    prop_assert_eq!(policy.slowest(now, vm), made.min());
                    let is_stopped = |vcpu: VcpuId| policy.vcpus[vcpu.index()].stopped;
                    let acts = |(vcpu, skew): &(VcpuId, i64)| {
                        is_stopped(*vcpu) || policy.rules.passes(*skew)
                    };
                    let any = policy.skews(now, vm).iter().any(acts);
                    prop_assert!(!any || policy.is_uneven(now, vm), "{:#?}", policy);
                }
                let held = policy.vms.iter().filter(|vm| vm.held).count();
                prop_assert_eq!(policy.held, held);
                if which == 7 {
                    let _ = policy.periodic(now);
                    let whole = policy.rules.generation == Generation::Esx2;
                    prop_assert!(whole || (0..2).all(|vm| policy.vms[vm].stopped < 3));
                }
            }
        }
    }
}
