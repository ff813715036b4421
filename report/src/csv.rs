//! The report as CSV: one row a vCPU, columns named as in JSON, with dots for what is inside.

use crate::latency::LatencyReport;
use crate::model::{Report, VcpuReport};
use stealtime_scheduler::input::ExitReason;

/// Columns of the run that precede those of the vCPU, so that rows of several runs can be joined.
const RUN: [&str; 6] = ["scenario", "policy", "backend", "seed", "cores", "wall_ns"];

impl Report {
    /// The report as CSV with a header.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let run = [
            self.scenario.clone(),
            self.policy.clone(),
            self.backend.clone(),
            self.seed.to_string(),
            self.cores.to_string(),
            self.wall_ns.to_string(),
        ];
        for (number, vcpu) in self.vcpus.iter().enumerate() {
            let columns = columns(vcpu);
            if number == 0 {
                let names = RUN.iter().map(|name| (*name).to_owned());
                write(
                    &mut writer,
                    names.chain(columns.iter().map(|(name, _)| name.clone())),
                );
            }
            write(
                &mut writer,
                run.iter()
                    .cloned()
                    .chain(columns.into_iter().map(|(_, v)| v)),
            );
        }
        let bytes = writer
            .into_inner()
            .expect("writing into memory cannot fail");
        String::from_utf8(bytes).expect("made of strings")
    }
}

fn write(writer: &mut csv::Writer<Vec<u8>>, record: impl Iterator<Item = String>) {
    let record: Vec<String> = record.collect();
    writer
        .write_record(&record)
        .expect("every row has the columns of the header, and memory takes it");
}

fn columns(vcpu: &VcpuReport) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = Vec::new();
    let mut add = |name: &str, value: String| all.push((name.to_owned(), value));
    add("vm", vcpu.vm.clone());
    add("vcpu", vcpu.vcpu.clone());
    for (name, value) in [
        ("run_ns", vcpu.run_ns),
        ("ready_ns", vcpu.ready_ns),
        ("blocked_ns", vcpu.blocked_ns),
        ("hypervisor_ns", vcpu.hypervisor_ns),
        ("costop_ns", vcpu.costop_ns),
        ("idle_ns", vcpu.idle_ns),
        ("kernel_priority_ns", vcpu.kernel_priority_ns),
        ("preempted_ns", vcpu.preempted_ns),
    ] {
        add(name, value.to_string());
    }
    add("share", vcpu.share.to_string());
    add("entitled", vcpu.entitled.to_string());
    latency(&mut add, "wakeup_ns", &vcpu.wakeup_ns);
    latency(&mut add, "run_delay_ns", &vcpu.run_delay_ns);
    for (name, value) in [
        ("longest_starvation_ns", vcpu.longest_starvation_ns),
        ("longest_starvation_at_ns", vcpu.longest_starvation_at_ns),
    ] {
        add(name, value.to_string());
    }
    add("starving_at_end", vcpu.starving_at_end.to_string());
    add("preemptions", vcpu.preemptions.to_string());
    for (reason, count) in &vcpu.preemptions_by_reason {
        add(
            &format!("preemptions_by_reason.{reason}"),
            count.to_string(),
        );
    }
    for (name, value) in [
        ("preemptions_in_lock", vcpu.preemptions_in_lock),
        ("migrations", vcpu.migrations),
        ("yields", vcpu.yields),
        ("kicks", vcpu.kicks),
        ("user_returns", vcpu.user_returns),
    ] {
        add(name, value.to_string());
    }
    for reason in ExitReason::ALL {
        let count = vcpu.exits.get(reason.name()).copied().unwrap_or(0);
        add(&format!("exits.{}", reason.name()), count.to_string());
    }
    add("host_delay_ns", vcpu.host_delay_ns.to_string());
    guest(&mut add, vcpu);
    all
}

fn guest(add: &mut impl FnMut(&str, String), vcpu: &VcpuReport) {
    let guest = &vcpu.guest;
    for (name, value) in [
        ("guest.progress_ns", guest.progress_ns),
        ("guest.gaps", guest.gaps),
        ("guest.gap_total_ns", guest.gap_total_ns),
        ("guest.gap_max_ns", guest.gap_max_ns),
    ] {
        add(name, value.to_string());
    }
    add(
        "guest.gap_difference_ns",
        guest.gap_difference_ns.to_string(),
    );
    latency(add, "guest.request_ns", &guest.request_ns);
    for (name, value) in [
        ("guest.interrupts", guest.interrupts),
        ("guest.lock_acquisitions", guest.lock_acquisitions),
        ("guest.lock_spin_ns", guest.lock_spin_ns),
    ] {
        add(name, value.to_string());
    }
}

fn latency(add: &mut impl FnMut(&str, String), name: &str, of: &LatencyReport) {
    for (part, value) in [
        ("count", of.count),
        ("p50", of.p50),
        ("p90", of.p90),
        ("p99", of.p99),
        ("p999", of.p999),
        ("max", of.max),
        ("max_at_ns", of.max_at_ns),
    ] {
        add(&format!("{name}.{part}"), value.to_string());
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::starved;
    use std::collections::BTreeSet;

    /// Names of the leaves of a JSON object, with dots.
    fn leaves(prefix: &str, value: &serde_json::Value, into: &mut BTreeSet<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let dot = if prefix.is_empty() { "" } else { "." };
                    leaves(&format!("{prefix}{dot}{name}"), value, into);
                }
            }
            _ => {
                into.insert(prefix.to_owned());
            }
        }
    }

    #[test]
    fn the_columns_are_the_names_of_the_json_form_and_every_row_has_them() {
        let report = starved();
        let csv = report.to_csv();
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let header: Vec<String> = reader
            .headers()
            .expect("CSV of a report")
            .iter()
            .map(str::to_owned)
            .collect();
        let mut expected = BTreeSet::new();
        leaves(
            "",
            &serde_json::to_value(&report.vcpus[0]).expect("CSV of a report"),
            &mut expected,
        );
        let found: BTreeSet<_> = header[super::RUN.len()..].iter().cloned().collect();
        assert_eq!(found, expected);
        let rows: Vec<_> = reader
            .records()
            .collect::<Result<_, _>>()
            .expect("CSV of a report");
        assert_eq!(rows.len(), report.vcpus.len());
        let place = header
            .iter()
            .position(|name| name == "ready_ns")
            .expect("CSV of a report");
        for (row, vcpu) in rows.iter().zip(&report.vcpus) {
            assert_eq!(row[place], vcpu.ready_ns.to_string());
        }
    }
}
