//! Programs in a stored plan: each op as the list of its fields, so that it is exact and short.
//!
//! `guest` has no dependencies, so the form is made here. The order is code, small, medium, a, b.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stealtime_guest::op::Op;

type Fields = (u16, u16, u32, u64, u64);

/// Writes a program.
pub(crate) fn serialize<S: Serializer>(program: &[Op], to: S) -> Result<S::Ok, S::Error> {
    let fields = |op: &Op| (op.code, op.small, op.medium, op.a, op.b);
    let all: Vec<Fields> = program.iter().map(fields).collect();
    all.serialize(to)
}

/// Reads a program.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Op>, D::Error> {
    let all = Vec::<Fields>::deserialize(from)?;
    let op = |(code, small, medium, a, b)| Op {
        code,
        small,
        medium,
        a,
        b,
    };
    Ok(all.into_iter().map(op).collect())
}
