//! Why a machine could not be made or started.

/// Why a machine could not be made or started.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// Not there yet.
    #[error("the machine is not finished")]
    Unfinished,
}
