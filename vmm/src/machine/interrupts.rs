//! Interrupt injection without an interrupt controller.
//!
//! Vectors wait here until the guest can take one; the highest goes first, as with a local APIC. KVM
//! says in `kvm_run` whether it can take one now; if not, it is asked to come back when it can.
#![expect(unsafe_code, reason = "kvm-ioctls has no KVM_INTERRUPT")]

use kvm_bindings::{KVMIO, kvm_interrupt};
use kvm_ioctls::VcpuFd;
use vmm_sys_util::errno;
use vmm_sys_util::ioctl::ioctl_with_ref;
use vmm_sys_util::ioctl_iow_nr;

ioctl_iow_nr!(KVM_INTERRUPT, KVMIO, 0x86, kvm_interrupt);

/// Vectors that wait for delivery.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Pending([u64; 4]);

impl Pending {
    pub(super) const fn insert(&mut self, vector: u8) {
        self.0[vector as usize / 64] |= 1 << (vector % 64);
    }

    const fn remove(&mut self, vector: u8) {
        self.0[vector as usize / 64] &= !(1 << (vector % 64));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    fn highest(&self) -> Option<u8> {
        let (word, bits) = (0..4_u8)
            .rev()
            .map(|word| (word, self.0[usize::from(word)]))
            .find(|(_, bits)| *bits != 0)?;
        u8::try_from(bits.ilog2()).ok().map(|bit| word * 64 + bit)
    }

    /// Hands one vector to KVM if the guest can take one at the next entry, and asks for a return
    /// as soon as it can take another if more wait. Whether KVM was given one.
    pub(super) fn deliver(&mut self, vcpu: &mut VcpuFd) -> Result<bool, kvm_ioctls::Error> {
        let mut given = false;
        if let Some(vector) = self.highest()
            && vcpu.get_kvm_run().ready_for_interrupt_injection != 0
        {
            let interrupt = kvm_interrupt {
                irq: u32::from(vector),
            };
            // SAFETY: the descriptor is a vCPU's, and KVM reads a `kvm_interrupt`.
            let status = unsafe { ioctl_with_ref(vcpu, KVM_INTERRUPT(), &interrupt) };
            if status != 0 {
                return Err(errno::Error::last());
            }
            self.remove(vector);
            given = true;
            // Until KVM says so again: it holds one now.
            vcpu.get_kvm_run().ready_for_interrupt_injection = 0;
        }
        vcpu.get_kvm_run().request_interrupt_window = u8::from(!self.is_empty());
        Ok(given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_vector_goes_first_and_each_once() {
        let mut pending = Pending::default();
        for vector in [0x20, 0x41, 255, 0x41, 64] {
            pending.insert(vector);
        }
        let mut order = Vec::new();
        while let Some(vector) = pending.highest() {
            pending.remove(vector);
            order.push(vector);
        }
        assert_eq!(order, [255, 0x41, 64, 0x20]);
        assert!(pending.is_empty());
    }
}
