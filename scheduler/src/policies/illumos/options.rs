//! What `fss` and `ts` say of the dispatcher that they share.

use crate::spec::{OptionInfo, OptionKind, SWITCH};
use crate::time::Nanos;

/// Its rules, in one paragraph.
pub(in crate::policies) const RULES: &str = "\
    Every core has its own dispatch queue. Who becomes runnable joins the queue of its last core if it \
    left that at most `rechoose` ago, else that of the least busy one; queues of equal priority are \
    balanced with the next core's. A core without anybody steals the best that waits elsewhere, but \
    for `nosteal` not from a core with which it shares no cache. Who is better takes the core when the \
    guest can be interrupted, or after the hypervisor's work in progress.";

/// The rules of turnstiles, in one paragraph.
pub(in crate::policies) const TURNSTILE_RULES: &str = "\
    Who waits for a host lock that is a mutex, or that a writer holds, lends its priority to the owner, \
    and along the chain of owners, until the lock is released. Readers and owners of plain locks \
    inherit nothing.";

/// What surprises about it.
pub(in crate::policies) const QUIRKS: &str = "\
    With `cache` set, a core may stay idle for up to `nosteal` while somebody waits elsewhere: only \
    then is the policy not work-conserving.";

pub(in crate::policies) const CROWD: &str = "\
    Threads that begin together, or are priced together, all queue on the same two cores. Each is placed on the \
    first of the least busy cores, or on the next one: only these two queues are compared. A core that has a \
    thread of its own does not steal.";

pub(in crate::policies) const CACHE: OptionInfo = OptionInfo {
    name: "cache",
    kind: OptionKind::Int { min: 0, max: 1024 },
    default: "0",
    help: "how many cores share a cache, counted from core 0: 0 for all of them",
};

pub(in crate::policies) const NOSTEAL: OptionInfo = OptionInfo {
    name: "nosteal",
    kind: OptionKind::Time {
        min: Nanos::ZERO,
        max: Nanos::from_secs(1),
    },
    default: "100us",
    help: "how long a waiting vCPU is not stolen by a core that shares no cache with its last",
};

pub(in crate::policies) const RECHOOSE: OptionInfo = OptionInfo {
    name: "rechoose",
    kind: OptionKind::Time {
        min: Nanos::ZERO,
        max: Nanos::from_secs(10),
    },
    default: "30ms",
    help: "how long after leaving a core a vCPU goes back to it: three ticks of the original",
};

pub(in crate::policies) const KERNEL_PREEMPTS: OptionInfo = OptionInfo {
    name: "kernel-preempts",
    kind: OptionKind::Int { min: 0, max: 100 },
    default: "100",
    help: "the priority from which a vCPU preempts hypervisor work: vCPUs have 0 to 60",
};

pub(in crate::policies) const TURNSTILE: OptionInfo = OptionInfo {
    name: "turnstile",
    kind: SWITCH,
    default: "on",
    help: "priority inheritance through host locks that are mutexes or held by a writer",
};
