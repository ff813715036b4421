//! Names of things: cores, vCPUs, VMs, locks.
//!
//! All are small dense indices given out at set-up, in the order of the plan, so that they serve as
//! the last tie-breaker and as positions in tables.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $int:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// Position in a table of all of its kind.
            #[must_use]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }
    };
}

id!(
    /// A core that the dispatcher hands out. The driver knows which host core it stands for.
    CoreId, u16, "core "
);
id!(
    /// A vCPU, counted over all VMs of the run.
    VcpuId, u32, "vcpu "
);
id!(
    /// A virtual machine.
    VmId, u16, "vm "
);
id!(
    /// A lock inside the hypervisor, shared by all VMs.
    HostLockId, u16, "host lock "
);
id!(
    /// A lock in a guest's memory: the VM's number in the upper half, the lock's in the lower.
    GuestLockId, u32, "guest lock "
);

impl GuestLockId {
    /// Lock number `lock` of `vm`.
    #[must_use]
    pub const fn new(vm: VmId, lock: u16) -> Self {
        Self(((vm.0 as u32) << 16) | lock as u32)
    }

    /// The VM in whose memory the lock is.
    #[must_use]
    pub const fn vm(self) -> VmId {
        VmId((self.0 >> 16) as u16)
    }

    /// The lock's number in its VM.
    #[must_use]
    pub const fn lock(self) -> u16 {
        (self.0 & 0xffff) as u16
    }
}
