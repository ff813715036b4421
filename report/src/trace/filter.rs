//! Which items are asked for.

use super::Item;
use crate::mask::Mask;
use stealtime_scheduler::ids::CoreId;
use stealtime_scheduler::time::Nanos;

/// Which items of a stream are to be shown.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Of these classes.
    pub mask: Mask,
    /// About these vCPUs, a flag for each; none for all.
    pub vcpus: Option<Vec<bool>>,
    /// About this core, or about a vCPU that is on it; none for all.
    pub core: Option<CoreId>,
    /// Not before this instant.
    pub from: Nanos,
    /// Not after this instant.
    pub to: Nanos,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            mask: Mask::default(),
            vcpus: None,
            core: None,
            from: Nanos::ZERO,
            to: Nanos::MAX,
        }
    }
}

impl Filter {
    /// Whether an item is asked for. What is about no vCPU in particular (a mark, a tick) is about
    /// all.
    #[must_use]
    pub fn admits(&self, item: &Item) -> bool {
        let vcpu = match (&self.vcpus, item.vcpu) {
            (Some(vcpus), Some(vcpu)) => vcpus.get(vcpu.index()).copied().unwrap_or(false),
            _ => true,
        };
        let everybody = item.vcpu.is_none() && item.core.is_none();
        vcpu && self.mask.meets(item.what.mask())
            && (self.core.is_none() || item.core == self.core || everybody)
            && (self.from..=self.to).contains(&item.at)
    }
}
