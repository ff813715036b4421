//! Why `KVM_RUN` returned: `kvm_run` parsed, once, into an [`Exit`].

use crate::cpu::{Call, Exit};
use kvm_bindings::{KVM_EXIT_INTERNAL_ERROR, kvm_run};
use kvm_ioctls::{VcpuExit, VcpuFd};
use std::sync::atomic::Ordering;
use stealtime_guest::call::{Port, Refusal};
use stealtime_guest::layout::FIRST_INTERRUPT;
use stealtime_guest::op;
use stealtime_guest::page::Page;
use stealtime_scheduler::ids::VcpuId;
use stealtime_scheduler::input::HostMode;
use stealtime_scheduler::time::Nanos;

/// Why guest code stopped running.
#[derive(Debug)]
pub(super) enum Stop {
    /// For a reason that the run loop knows.
    Exit(Exit),
    /// The guest waits for a command: it has not started its program.
    Ready,
}

/// Runs guest code until it stops.
pub(super) fn run(vcpu: &mut VcpuFd, page: &Page) -> Stop {
    let fault = |line: String| Stop::Exit(Exit::Fault(line));
    match vcpu.run() {
        Ok(VcpuExit::IoOut(port, _)) => call(port, page),
        Ok(VcpuExit::IoIn(port, _)) => {
            fault(format!("read from port {port:#x}, where nothing answers"))
        }
        Ok(VcpuExit::Hlt) => halt(vcpu.get_kvm_run()),
        Ok(VcpuExit::IrqWindowOpen) => Stop::Exit(Exit::InterruptWindow),
        Ok(VcpuExit::Intr) => Stop::Exit(Exit::Interrupted),
        Ok(VcpuExit::Shutdown) => fault("triple fault".into()),
        Ok(VcpuExit::MmioRead(address, _)) => fault(format!(
            "read from address {address:#x}, where nothing answers"
        )),
        Ok(VcpuExit::MmioWrite(address, _)) => fault(format!(
            "wrote to address {address:#x}, where nothing answers"
        )),
        Ok(VcpuExit::FailEntry(reason, core)) => fault(format!(
            "the processor refused to run the guest (reason {reason:#x}, host core {core})"
        )),
        Ok(VcpuExit::InternalError) => fault(internal_error(vcpu)),
        Ok(exit) => fault(format!(
            "KVM stopped the guest for a reason unknown here: {exit:?}"
        )),
        Err(error) if matches!(error.errno(), libc::EINTR | libc::EAGAIN) => {
            Stop::Exit(Exit::Interrupted)
        }
        Err(error) => fault(format!("KVM could not run the guest: {error}")),
    }
}

fn halt(run: &kvm_run) -> Stop {
    Stop::Exit(if run.if_flag == 0 {
        Exit::Fault("halted with interrupts off".into())
    } else {
        Exit::Halt
    })
}

#[expect(unsafe_code, reason = "a union of the kernel's")]
fn internal_error(vcpu: &mut VcpuFd) -> String {
    let run = vcpu.get_kvm_run();
    debug_assert_eq!(run.exit_reason, KVM_EXIT_INTERNAL_ERROR);
    // SAFETY: `run` has just returned an internal error, for which KVM fills in this member; all
    // its bit patterns are numbers.
    let suberror = unsafe { run.__bindgen_anon_1.internal.suberror };
    format!("KVM gave up on the guest (internal error {suberror})")
}

/// A write to a port: a call, or nonsense.
fn call(port: u16, page: &Page) -> Stop {
    let fault = |line: String| Stop::Exit(Exit::Fault(line));
    let Some(known) = Port::from_number(port) else {
        return fault(format!("wrote to port {port:#x}, where nothing answers"));
    };
    let (a, b) = (
        page.call_a.load(Ordering::Relaxed),
        page.call_b.load(Ordering::Relaxed),
    );
    let parsed = match known {
        Port::Ready => return Stop::Ready,
        Port::Exception => return fault(exception(page)),
        Port::Refused => {
            let refusal = Refusal::decode(a, b);
            return fault(refusal.map_or_else(
                || "the guest refused its program and did not say why".into(),
                |refusal| refusal.to_string(),
            ));
        }
        other => parse_call(other, a, b),
    };
    match parsed {
        Some(call) => Stop::Exit(Exit::Call(call)),
        None => fault(format!(
            "made a call with arguments that mean nothing ({known:?}: {a:#x}, {b:#x})"
        )),
    }
}

/// The call with its arguments; none if they are out of range.
fn parse_call(port: Port, a: u64, b: u64) -> Option<Call> {
    let vector = || {
        let vector = u8::try_from(b).ok()?;
        (vector >= FIRST_INTERRUPT).then_some(vector)
    };
    let lock = || u16::try_from(a).ok();
    Some(match port {
        Port::Sleep => Call::Sleep(Nanos(a)),
        Port::HostWait => Call::HostWait(Nanos(a)),
        Port::Periodic => Call::Periodic {
            period: Nanos(a),
            // Disarming needs no vector.
            vector: if a == 0 { FIRST_INTERRUPT } else { vector()? },
        },
        Port::Yield => Call::Yield,
        Port::Interrupt => Call::Interrupt {
            to: VcpuId(u32::try_from(a).ok()?),
            vector: vector()?,
        },
        Port::HostLock => Call::HostLock {
            lock: lock()?,
            kernel_priority: b != 0,
        },
        Port::HostAcquire => {
            let (mode, kernel_priority) = op::HostMode::unpack(b)?;
            Call::HostAcquire {
                lock: lock()?,
                mode: mode_of(mode),
                kernel_priority,
            }
        }
        Port::HostUnlock => Call::HostUnlock(lock()?),
        Port::Hypervisor => Call::Hypervisor(Nanos(a)),
        Port::UserReturn => Call::UserReturn,
        Port::CriticalLeft => Call::CriticalLeft,
        Port::Wait => Call::GuestWait(lock()?),
        Port::Wake => Call::GuestWake {
            index: u32::try_from(a).ok()?,
            lock: u16::try_from(b).ok()?,
        },
        Port::SpunTooLong => Call::SpunTooLong(lock()?),
        Port::Finished => Call::Finished,
        Port::Nothing => Call::Nothing,
        Port::Ready | Port::Refused | Port::Exception => return None,
    })
}

const fn mode_of(mode: op::HostMode) -> HostMode {
    match mode {
        op::HostMode::Mutex => HostMode::Mutex,
        op::HostMode::Read => HostMode::Read,
        op::HostMode::Write => HostMode::Write,
    }
}

/// What the guest's ring 0 wrote of an exception.
fn exception(page: &Page) -> String {
    let vector = page.exception_vector.load(Ordering::Relaxed);
    let error = page.exception_error.load(Ordering::Relaxed);
    let rip = page.exception_rip.load(Ordering::Relaxed);
    let about = match vector {
        14 => {
            let address = page.exception_cr2.load(Ordering::Relaxed);
            format!("page fault at address {address:#x}")
        }
        vector => exception_name(vector).to_string(),
    };
    format!("{about} (vector {vector}, error code {error:#x}, instruction at {rip:#x})")
}

const fn exception_name(vector: u64) -> &'static str {
    match vector {
        0 => "division by zero",
        1 => "debug exception",
        2 => "non-maskable interrupt",
        3 => "breakpoint",
        6 => "undefined instruction",
        7 => "no coprocessor",
        8 => "double fault",
        10 => "bad task state",
        11 => "segment not present",
        12 => "stack fault",
        13 => "general protection fault",
        16 => "floating point error",
        17 => "misaligned access",
        18 => "machine check",
        _ => "unexpected exception",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_out_of_range_make_no_call() {
        assert_eq!(
            parse_call(Port::Interrupt, 0, 3),
            None,
            "an exception's vector"
        );
        assert_eq!(parse_call(Port::Interrupt, 1 << 40, 0x40), None);
        assert_eq!(parse_call(Port::HostLock, 70_000, 0), None);
        assert_eq!(parse_call(Port::HostAcquire, 70_000, 0), None);
        assert_eq!(parse_call(Port::HostAcquire, 1, 6), None);
        assert_eq!(parse_call(Port::Periodic, 1, 256), None);
        assert_eq!(parse_call(Port::Wait, 70_000, 0), None);
        assert_eq!(parse_call(Port::Wake, 0, 70_000), None);
        assert_eq!(parse_call(Port::Wake, 1 << 32, 0), None);
        let disarm = parse_call(Port::Periodic, 0, 0);
        assert!(matches!(
            disarm,
            Some(Call::Periodic {
                period: Nanos::ZERO,
                ..
            })
        ));
    }

    #[test]
    fn arguments_in_range_arrive_whole() {
        assert_eq!(
            parse_call(Port::Sleep, u64::MAX, 0),
            Some(Call::Sleep(Nanos::MAX))
        );
        assert_eq!(
            parse_call(Port::Interrupt, 70_000, 0xff),
            Some(Call::Interrupt {
                to: VcpuId(70_000),
                vector: 0xff
            })
        );
        assert_eq!(
            parse_call(Port::Wake, 70_000, 3),
            Some(Call::GuestWake {
                index: 70_000,
                lock: 3
            })
        );
        for mode in [op::HostMode::Mutex, op::HostMode::Read, op::HostMode::Write] {
            let how = u64::from(mode.pack(true));
            assert_eq!(
                parse_call(Port::HostAcquire, 7, how),
                Some(Call::HostAcquire {
                    lock: 7,
                    mode: mode_of(mode),
                    kernel_priority: true
                })
            );
        }
    }
}
