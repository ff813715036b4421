//! The policies, one a file. Each opens with its rules and their source.

pub mod eevdf;
pub mod fss;
pub mod host;
pub mod rr;
