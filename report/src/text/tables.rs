//! The tables, one row a vCPU.

use super::format::{grouped, per_cent, rendered, table, tenths_of_per_cent};
use crate::latency::LatencyReport;
use crate::model::{Report, VcpuReport};
use stealtime_scheduler::time::Nanos;

/// In place of a figure that does not exist.
const NONE: &str = "-";

/// What it received and what it was entitled to, and the six states.
pub(super) fn time(report: &Report, vcpus: &[&VcpuReport]) -> String {
    let costop = report.vcpus.iter().any(|vcpu| vcpu.costop_ns > 0);
    let mut header = vec![
        "vCPU",
        "received",
        "entitled",
        "running",
        "hypervisor",
        "ready (steal)",
        "blocked",
        "idle",
    ];
    if costop {
        header.insert(6, "co-stopped");
    }
    let mut table = table(&header);
    for vcpu in vcpus {
        let states = tenths_of_per_cent([
            vcpu.run_ns,
            vcpu.hypervisor_ns,
            vcpu.ready_ns,
            vcpu.costop_ns,
            vcpu.blocked_ns,
            vcpu.idle_ns,
        ]);
        let mut row = vec![vcpu.name(), per_cent(vcpu.share), per_cent(vcpu.entitled)];
        for (place, tenths) in states.into_iter().enumerate() {
            if place != 3 || costop {
                row.push(format!("{}.{}", tenths / 10, tenths % 10));
            }
        }
        table.add_row(row);
    }
    rendered(&table)
}

/// A length of time, or that there is none.
fn length(of: &LatencyReport, value: u64) -> String {
    if of.count == 0 {
        NONE.to_owned()
    } else {
        Nanos(value).to_string()
    }
}

/// Wake-up latency, run delay, longest starvation.
pub(super) fn waiting(vcpus: &[&VcpuReport]) -> String {
    let mut table = table(&[
        "\n\nvCPU",
        "\n\nwake-ups",
        "wake-up\nlatency\nmedian",
        "\n\n99 %",
        "\n\nlongest",
        "\nall\nwaits",
        "run\ndelay\nmedian",
        "\n\n99 %",
        "\n\nlongest",
        "\nlongest\nstarvation",
        "\nwhich\nbegan at",
    ]);
    for vcpu in vcpus {
        let (wake, delay) = (&vcpu.wakeup_ns, &vcpu.run_delay_ns);
        let (starvation, began) = if vcpu.longest_starvation_ns == 0 {
            (NONE.to_owned(), NONE.to_owned())
        } else {
            let at = Nanos(vcpu.longest_starvation_at_ns).as_secs_f64();
            let length = Nanos(vcpu.longest_starvation_ns).to_string();
            (length, format!("{at:.3} s"))
        };
        table.add_row([
            vcpu.name(),
            grouped(wake.count),
            length(wake, wake.p50),
            length(wake, wake.p99),
            length(wake, wake.max),
            grouped(delay.count),
            length(delay, delay.p50),
            length(delay, delay.p99),
            length(delay, delay.max),
            starvation,
            began,
        ]);
    }
    rendered(&table)
}

/// Preemptions, migrations, exits.
pub(super) fn counts(vcpus: &[&VcpuReport]) -> String {
    let mut table = table(&[
        "\nvCPU",
        "\npreemptions",
        "while it held\na guest lock",
        "\nyields",
        "core\nmigrations",
        "exits\nin all",
        "returns to\nuser mode",
        "at kernel\npriority",
    ]);
    for vcpu in vcpus {
        table.add_row([
            vcpu.name(),
            grouped(vcpu.preemptions),
            grouped(vcpu.preemptions_in_lock),
            grouped(vcpu.yields),
            grouped(vcpu.migrations),
            grouped(vcpu.exits_total()),
            grouped(vcpu.user_returns),
            match vcpu.kernel_priority_ns {
                0 => NONE.to_owned(),
                n => Nanos(n).to_string(),
            },
        ]);
    }
    rendered(&table)
}

/// What the guests measured themselves.
pub(super) fn guest(vcpus: &[&VcpuReport]) -> String {
    let mut table = table(&[
        "\nvCPU",
        "work\ndone",
        "gaps in\nits time",
        "\nin all",
        "\nlargest",
        "against the\nhost's view",
        "\nrequests",
        "latency\nmedian",
        "\n99 %",
        "\nlongest",
    ]);
    for vcpu in vcpus {
        let guest = &vcpu.guest;
        let request = &guest.request_ns;
        let difference = Nanos(guest.gap_difference_ns.unsigned_abs());
        let sign = match guest.gap_difference_ns {
            0 => "",
            1.. => "+",
            _ => "−",
        };
        table.add_row([
            vcpu.name(),
            Nanos(guest.progress_ns).to_string(),
            grouped(guest.gaps),
            Nanos(guest.gap_total_ns).to_string(),
            Nanos(guest.gap_max_ns).to_string(),
            format!("{sign}{difference}"),
            grouped(request.count),
            length(request, request.p50),
            length(request, request.p99),
            length(request, request.max),
        ]);
    }
    rendered(&table)
}

/// What the guests' own locks cost them.
pub(super) fn locks(vcpus: &[&VcpuReport]) -> String {
    let mut table = table(&[
        "\nvCPU",
        "\ntaken",
        "time\nspinning",
        "asleep for one,\nor blocked",
        "preempted while\nit held one",
    ]);
    for vcpu in vcpus {
        table.add_row([
            vcpu.name(),
            grouped(vcpu.guest.lock_acquisitions),
            Nanos(vcpu.guest.lock_spin_ns).to_string(),
            Nanos(vcpu.blocked_ns).to_string(),
            grouped(vcpu.preemptions_in_lock),
        ]);
    }
    rendered(&table)
}
