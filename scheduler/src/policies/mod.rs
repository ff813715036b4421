//! The policies, one a file. Each opens with its rules and their source.

pub mod bvt;
pub mod cfs;
pub mod credit;
pub mod credit2;
pub mod eevdf;
pub mod four_bsd;
mod freebsd;
pub mod fss;
pub mod host;
mod illumos;
pub mod lottery;
pub mod nice;
pub mod null;
pub mod rr;
pub mod rtds;
pub mod stride;
pub mod ts;
pub mod ule;
