//! Whether KVM can be used, and why not.

use kvm_ioctls::{Cap, Kvm};
use std::io::{Error, ErrorKind};

/// The version of KVM's interface that this program is written for; it has been stable since 2007.
const API_VERSION: i32 = 12;

/// What KVM must be able to do.
const NEEDED: [(Cap, &str); 3] = [
    (Cap::UserMemory, "KVM_CAP_USER_MEMORY"),
    (Cap::ExtCpuid, "KVM_CAP_EXT_CPUID"),
    (Cap::ImmediateExit, "KVM_CAP_IMMEDIATE_EXIT"),
];

/// Whether KVM can be used.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KvmStatus {
    /// Why not, one line each with what to do; empty if it can be used.
    pub problems: Vec<String>,
    /// The version of its interface, if it could be asked.
    pub api_version: Option<i32>,
    /// The most vCPUs that a VM may have, if it could be asked.
    pub max_vcpus: Option<usize>,
}

impl KvmStatus {
    /// Whether machines can be made.
    #[must_use]
    pub const fn usable(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks whether KVM can be used, by asking it.
#[must_use]
pub fn check() -> KvmStatus {
    match Kvm::new() {
        Ok(kvm) => ask(&kvm),
        Err(error) => KvmStatus {
            problems: vec![cannot_open(&Error::from_raw_os_error(error.errno()))],
            ..KvmStatus::default()
        },
    }
}

fn cannot_open(error: &Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "/dev/kvm does not exist: load kvm_intel or kvm_amd, and enable \
            virtualization in the firmware (in a VM: nested virtualization in its host)"
            .into(),
        ErrorKind::PermissionDenied => "/dev/kvm may not be opened by this user: become a member \
            of its group (usually `sudo usermod -aG kvm $USER`, then log in again)"
            .into(),
        _ => format!("/dev/kvm cannot be opened ({error}): see the kernel's log for what KVM says"),
    }
}

fn ask(kvm: &Kvm) -> KvmStatus {
    let version = kvm.get_api_version();
    let mut problems = Vec::new();
    if version != API_VERSION {
        problems.push(format!(
            "KVM has interface version {version}, not {API_VERSION}: use a kernel from 2.6.22 on"
        ));
    }
    for (capability, name) in NEEDED {
        if !kvm.check_extension(capability) {
            problems.push(format!("KVM lacks {name}: use Linux 4.12 or newer"));
        }
    }
    if problems.is_empty()
        && let Err(error) = kvm.create_vm()
    {
        problems.push(format!(
            "KVM creates no VM ({error}): another hypervisor may hold the processor; end it"
        ));
    }
    KvmStatus {
        problems,
        api_version: Some(version),
        max_vcpus: Some(kvm.get_max_vcpus()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_one_line_that_says_what_to_do() {
        for (kind, what) in [
            (ErrorKind::NotFound, "load kvm_intel or kvm_amd"),
            (ErrorKind::PermissionDenied, "usermod -aG kvm"),
            (ErrorKind::Other, "kernel's log"),
        ] {
            let line = cannot_open(&Error::from(kind));
            assert!(line.contains(what), "{line}");
            assert!(!line.contains('\n') && !line.contains("  "), "{line}");
        }
    }
}
