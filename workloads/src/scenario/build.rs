//! From a scenario as written to the VMs and vCPUs of a plan: copies, numbers, programs of ops.
//!
//! VMs are numbered in the order written, copies in a row; vCPUs likewise over all VMs; a VM's locks
//! in the order of its `locks` table; host locks in the order in which programs first name them.

use super::error::{Fault, Problem, StepFault, nearest};
use super::guest_lock::Use;
use super::host_lock::{self, HostLockKinds};
use super::model::{Rounds, ScenarioText, StepLine, VcpuText, VmText};
use super::step::{Statement, Target};
use super::{INTERRUPT_VECTOR, MAX_LOCKS, MAX_OPS, MAX_VCPUS, MAX_VMS, TIMER_VECTOR};
use crate::run::{VcpuPlan, VmPlan};
use std::collections::{HashMap, HashSet};
use stealtime_guest::op::{Length, Op, Step};
use stealtime_scheduler::ids::VmId;
use stealtime_scheduler::policy::VcpuParams;

/// The length of one piece of `spin`, in nanoseconds.
const SPIN_PIECE: u64 = 1_000_000;

/// The parts of a plan that come from a scenario's VMs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Built {
    pub(super) vms: Vec<VmPlan>,
    pub(super) vcpus: Vec<VcpuPlan>,
    pub(super) host_locks: Vec<String>,
}

/// Who executes a step: the vCPU after copying.
struct Place<'a> {
    text: &'a VcpuText,
    vm: &'a VmText,
    vm_name: &'a str,
    vm_copy: usize,
    vcpu_copy: usize,
}

/// All vCPUs by `VM/VCPU`, and the host locks so far.
#[derive(Default)]
struct Names {
    vcpus: HashMap<String, u32>,
    in_order: Vec<String>,
    host_locks: Vec<String>,
    host_kinds: HostLockKinds,
}

/// Numbers everything.
pub(super) fn build(scenario: &ScenarioText) -> Result<Built, Fault> {
    let mut names = Names {
        host_kinds: scenario.host_locks.clone(),
        ..Names::default()
    };
    let copies = copies(scenario)?;
    for (vm, vm_name, _) in &copies {
        names.add(vm, vm_name)?;
    }
    let mut built = Built {
        vms: Vec::new(),
        vcpus: Vec::new(),
        host_locks: Vec::new(),
    };
    for (vm, vm_name, vm_copy) in &copies {
        let id = VmId(u16::try_from(built.vms.len()).unwrap_or(u16::MAX));
        let width: usize = vm.vcpus.iter().map(|vcpu| vcpu.count).sum();
        let mut index = 0;
        for text in &vm.vcpus {
            let params = params(vm, text, id, width)?;
            for vcpu_copy in 1..=text.count {
                let place = Place {
                    text,
                    vm,
                    vm_name,
                    vm_copy: *vm_copy,
                    vcpu_copy,
                };
                built.vcpus.push(VcpuPlan {
                    name: copy_name(&text.name.value, text.count, vcpu_copy),
                    vm: id,
                    index,
                    params,
                    start: text.start,
                    program: names.program(&place)?,
                });
                index += 1;
            }
        }
        built.vms.push(VmPlan {
            name: vm_name.clone(),
            locks: vm.locks.all().to_vec(),
        });
    }
    built.host_locks = names.host_locks;
    Ok(built)
}

/// `name` alone, or with the number of the copy if there are several.
fn copy_name(name: &str, count: usize, copy: usize) -> String {
    if count == 1 {
        name.to_owned()
    } else {
        format!("{name}-{copy}")
    }
}

fn too_many(at: usize, what: &'static str, count: usize, limit: usize) -> Fault {
    Fault::at(at, Problem::TooMany { what, count, limit })
}

/// Every VM with its name and the number of its copy.
fn copies(scenario: &ScenarioText) -> Result<Vec<(&VmText, String, usize)>, Fault> {
    let (mut vms, mut vcpus) = (0, 0usize);
    for vm in &scenario.vms {
        vms += vm.count;
        let width: usize = vm.vcpus.iter().map(|vcpu| vcpu.count).sum();
        vcpus = vcpus.saturating_add(vm.count.saturating_mul(width));
        if vms > MAX_VMS {
            return Err(too_many(vm.name.at, "VMs", vms, MAX_VMS));
        }
        if vcpus > MAX_VCPUS {
            return Err(too_many(vm.name.at, "vCPUs", vcpus, MAX_VCPUS));
        }
    }
    let mut taken = HashSet::new();
    let mut copies = Vec::with_capacity(vms);
    for vm in &scenario.vms {
        for copy in 1..=vm.count {
            let name = copy_name(&vm.name.value, vm.count, copy);
            if !taken.insert(name.clone()) {
                let what = "VM";
                return Err(Fault::at(vm.name.at, Problem::Duplicate { what, name }));
            }
            copies.push((vm, name, copy));
        }
    }
    Ok(copies)
}

fn params(vm: &VmText, vcpu: &VcpuText, id: VmId, width: usize) -> Result<VcpuParams, Fault> {
    if let (Some(_), Some(own)) = (&vm.cap, &vcpu.cap) {
        let (one, other) = ("cap of the VM", "cap of its vCPU");
        return Err(Fault::at(own.at, Problem::OnlyOne { one, other }));
    }
    if let Some(cap) = vm
        .cap
        .as_ref()
        .filter(|cap| cap.value as usize > 100 * width)
    {
        let problem = Problem::Value {
            key: "cap".into(),
            written: cap.value.to_string(),
            expected: format!(
                "a whole number from 1 to {}, 100 for each vCPU",
                100 * width
            ),
        };
        return Err(Fault::at(cap.at, problem));
    }
    let cap = vcpu.cap.as_ref().or(vm.cap.as_ref());
    Ok(VcpuParams {
        siblings: u32::try_from(width).unwrap_or(u32::MAX),
        shares: vm.shares,
        weight: vcpu.weight,
        nice: vcpu.nice,
        slice: vcpu.slice,
        cap: cap.map(|cap| cap.value),
        period: vcpu.reservation.map(|(period, _)| period),
        budget: vcpu.reservation.map(|(_, budget)| budget),
        ..VcpuParams::plain(id)
    })
}

impl Names {
    fn add(&mut self, vm: &VmText, vm_name: &str) -> Result<(), Fault> {
        for vcpu in &vm.vcpus {
            for copy in 1..=vcpu.count {
                let own = copy_name(&vcpu.name.value, vcpu.count, copy);
                let full = format!("{vm_name}/{own}");
                let number = u32::try_from(self.in_order.len()).unwrap_or(u32::MAX);
                if self.vcpus.insert(full.clone(), number).is_some() {
                    let (what, name) = ("vCPU", full);
                    return Err(Fault::at(vcpu.name.at, Problem::Duplicate { what, name }));
                }
                self.in_order.push(full);
            }
        }
        Ok(())
    }

    /// The whole program of a vCPU: setup, then the program as often as it is repeated.
    fn program(&mut self, place: &Place<'_>) -> Result<Vec<Op>, Fault> {
        let text = place.text;
        let mut steps = Vec::new();
        self.lines(&text.setup, place, &mut steps)?;
        let rounds = match text.rounds {
            Rounds::Forever => Some(0),
            Rounds::Times(1) => None,
            Rounds::Times(times) => Some(times),
        };
        steps.extend(rounds.map(Step::Repeat));
        self.lines(&text.program, place, &mut steps)?;
        steps.extend(rounds.map(|_| Step::EndRepeat));
        steps.push(Step::End);
        if steps.len() > MAX_OPS {
            let what = "ops in a program";
            return Err(too_many(text.name.at, what, steps.len(), MAX_OPS));
        }
        Ok(steps.into_iter().map(Step::encode).collect())
    }

    fn lines(
        &mut self,
        lines: &[StepLine],
        place: &Place<'_>,
        steps: &mut Vec<Step>,
    ) -> Result<(), Fault> {
        for line in lines {
            if line.statement == Statement::Spin {
                let piece = Step::Run(Length::Fixed(SPIN_PIECE));
                steps.extend([Step::Repeat(0), piece, Step::EndRepeat]);
            } else {
                steps.push(self.step(line, place)?);
            }
        }
        Ok(())
    }

    fn step(&mut self, line: &StepLine, place: &Place<'_>) -> Result<Step, Fault> {
        Ok(match &line.statement {
            Statement::Run(length) => Step::Run(*length),
            Statement::Spin => Step::Run(Length::Fixed(SPIN_PIECE)),
            Statement::Sleep(length) => Step::Sleep(*length),
            Statement::HostWait(length) => Step::HostWait(*length),
            Statement::Hypervisor(length) => Step::Hypervisor(*length),
            Statement::Timer(period) => Step::Periodic {
                period: period.map_or(0, |period| period.get()),
                vector: TIMER_VECTOR,
            },
            Statement::Wait => Step::WaitInterrupt,
            Statement::Yield => Step::Yield,
            Statement::Interrupt(target) => Step::Interrupt {
                vcpu: self.target(target, line, place)?,
                vector: INTERRUPT_VECTOR,
            },
            Statement::Lock(lock) => Step::Lock(place.lock(lock, Use::Lock, line)?),
            Statement::Unlock(lock) => Step::Unlock(place.lock(lock, Use::Lock, line)?),
            Statement::ReadLock(lock) => Step::ReadLock(place.lock(lock, Use::Read, line)?),
            Statement::Barrier(barrier) => Step::Barrier(place.lock(barrier, Use::Meet, line)?),
            Statement::Send(channel) => Step::Send(place.lock(channel, Use::Message, line)?),
            Statement::Receive(channel) => {
                Step::Receive(place.lock(channel, Use::Message, line)?)
            }
            Statement::HostLock {
                lock,
                kernel_priority,
            } => {
                let number = self.host_lock(lock, line)?;
                host_lock::take(&self.host_kinds, lock, number, *kernel_priority)
            }
            Statement::HostReadLock {
                lock,
                kernel_priority,
            } => {
                let number = self.host_lock(lock, line)?;
                host_lock::read(&self.host_kinds, lock, number, *kernel_priority, line)?
            }
            Statement::HostUnlock(lock) => Step::HostUnlock(self.host_lock(lock, line)?),
            Statement::UserReturn => Step::UserReturn,
            Statement::Begin => Step::RequestBegin,
            Statement::End => Step::RequestEnd,
            Statement::CriticalEnter => Step::CriticalEnter,
            Statement::CriticalLeave => Step::CriticalLeave,
            Statement::Exit => Step::Exit,
            Statement::Repeat(rounds) => Step::Repeat(rounds.map_or(0, u32::from)),
            Statement::EndRepeat => Step::EndRepeat,
            Statement::Fault(misdeed) => Step::Fault(*misdeed),
        })
    }

    fn host_lock(&mut self, lock: &str, line: &StepLine) -> Result<u16, Fault> {
        let known = self.host_locks.iter().position(|name| name == lock);
        let number = known.unwrap_or_else(|| {
            self.host_locks.push(lock.to_owned());
            self.host_locks.len() - 1
        });
        if number >= MAX_LOCKS {
            return Err(too_many(line.at, "host locks", number + 1, MAX_LOCKS));
        }
        Ok(u16::try_from(number).unwrap_or(u16::MAX))
    }

    /// A name without a number stands for the copy with the sender's own number.
    fn target(&self, target: &Target, line: &StepLine, place: &Place<'_>) -> Result<u32, Fault> {
        let vms = match &target.vm {
            None => vec![place.vm_name.to_owned()],
            Some(vm) => vec![vm.clone(), format!("{vm}-{}", place.vm_copy)],
        };
        let vcpus = [
            target.vcpu.clone(),
            format!("{}-{}", target.vcpu, place.vcpu_copy),
        ];
        for vm in &vms {
            for vcpu in &vcpus {
                if let Some(number) = self.vcpus.get(&format!("{vm}/{vcpu}")) {
                    return Ok(*number);
                }
            }
        }
        let written = match &target.vm {
            None => format!("{}/{}", place.vm_name, target.vcpu),
            Some(_) => target.to_string(),
        };
        let mut known = self
            .in_order
            .iter()
            .take(12)
            .map(|name| &**name)
            .collect::<Vec<_>>()
            .join(", ");
        if self.in_order.len() > 12 {
            known.push_str(", …");
        }
        let fault = StepFault::UnknownTarget {
            meant: nearest(&written, self.in_order.iter().map(|name| &**name)),
            target: written,
            known,
        };
        Err(Fault::step(line.at, &line.text, fault))
    }
}

impl Place<'_> {
    /// The number of a lock. The VM is known to have one of this name, but perhaps not so many copies.
    fn lock(&self, lock: &str, how: Use, line: &StepLine) -> Result<u16, Fault> {
        let number = self.vm.locks.number(lock, self.vcpu_copy);
        number.ok_or_else(|| {
            let missing = format!("{lock}-{}", self.vcpu_copy);
            Fault::step(line.at, &line.text, self.vm.locks.unknown(&missing, how))
        })
    }
}
