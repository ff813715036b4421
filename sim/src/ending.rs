//! Ends: of a program, of a VM whose guest misbehaved, of the warm-up, of the run.

use crate::machine::Machine;
use crate::queue::Slot;
use crate::vcpu::Place;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::{ExitReason, Input, Mark, RetireReason};
use stealtime_scheduler::time::Nanos;
use stealtime_workloads::run::VmFailure;

impl Machine<'_> {
    /// The vCPU is gone, from wherever it is.
    pub(crate) fn retire(&mut self, vcpu: VcpuId, why: RetireReason) {
        let entry = self.vcpu(vcpu);
        if entry.place == Place::Gone {
            return;
        }
        let on = entry.core.filter(|_| entry.on_core());
        self.tell_handled(vcpu);
        self.tell_thefts(vcpu);
        self.tell(Input::Retire { vcpu, why }, on);
        self.queue.cancel(Slot::Step(vcpu));
        self.queue.cancel(Slot::Signal(vcpu));
        self.vcpu(vcpu).place = Place::Gone;
        self.forget_operation(vcpu);
        self.alive -= 1;
    }

    /// Guest code ends its VM by what it does.
    pub(crate) fn fail_in_guest(&mut self, vcpu: VcpuId, why: ExitReason, message: &str) {
        self.vcpu(vcpu).gap_from = None;
        self.out_of_guest(vcpu, why);
        self.fail(vcpu, message);
    }

    /// The vCPU has ended its VM. vCPUs of the VM that run guest code on other cores are signalled
    /// and retire when they are out of it; the rest retire now.
    pub(crate) fn fail(&mut self, vcpu: VcpuId, message: &str) {
        let (vm, at) = (self.vcpu(vcpu).vm, self.now);
        if !self.vcpu(vcpu).doomed {
            self.failures.push(VmFailure {
                vm,
                at,
                message: message.to_owned(),
            });
        }
        self.retire(vcpu, RetireReason::Fault);
        for index in 0..self.vcpus.len() {
            let sibling = self.vcpus[index].id;
            if self.vcpus[index].vm != vm {
                continue;
            }
            match self.vcpus[index].place {
                Place::Guest | Place::Leaving(_) | Place::Hypervisor => {
                    self.vcpus[index].doomed = true;
                    self.signal(sibling);
                }
                Place::Unborn | Place::Off | Place::Switching => {
                    self.retire(sibling, RetireReason::Fault);
                }
                Place::Gone => {}
            }
        }
    }

    /// The warm-up is over.
    pub(crate) fn begin_measuring(&mut self) {
        let now = self.now;
        self.measuring = true;
        self.tell_all_thefts();
        self.interference.told = Nanos::ZERO;
        for vcpu in &mut self.vcpus {
            vcpu.measure_from(now);
        }
        self.tell(Input::Mark(Mark::MeasureStart), None);
        self.queue.set(Slot::Mark, now + self.plan.duration);
    }

    /// The run is over. Those that are off core retire first, so that no core is given to one that
    /// is about to retire.
    pub(crate) fn end(&mut self) {
        let now = self.now;
        if !self.measuring {
            self.begin_measuring();
        }
        self.tell_all_thefts();
        for vcpu in &mut self.vcpus {
            vcpu.measure_to(now);
        }
        self.tell(Input::Mark(Mark::MeasureEnd), None);
        for on_core in [false, true] {
            for index in 0..self.vcpus.len() {
                if self.vcpus[index].on_core() == on_core {
                    self.retire(self.vcpus[index].id, RetireReason::RunOver);
                }
            }
        }
        self.stream.flush(now);
    }
}
