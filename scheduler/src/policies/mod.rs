//! The policies, one a file. Each opens with its rules and their source.

pub mod balance;
pub mod bvt;
pub mod cfs;
pub mod credit;
pub mod credit2;
pub mod eevdf;
pub mod four_bsd;
mod freebsd;
pub mod fss;
pub mod gang;
pub mod host;
mod illumos;
pub mod lottery;
pub mod nice;
pub mod null;
pub mod relaxed;
pub mod rr;
pub mod rtds;
pub mod stride;
pub mod ts;
pub mod ule;
