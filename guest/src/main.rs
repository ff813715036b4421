//! Placeholder: the guest kernel.

fn main() {}
