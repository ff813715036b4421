//! A trace as a document for viewers: the JSON form that Chrome made known, which Perfetto's viewer
//! (ui.perfetto.dev) opens too.
//!
//! A track a core with who is on it, a track a host lock with who holds it, a track a vCPU with its
//! states and, as instants, what befell it; arrows from who woke to who was woken; the number of
//! ready vCPUs as a counter. The classes asked for decide what there is: `proc` states, `lock` the
//! tracks of locks, the others instants.

use super::words::{Words, stands};
use super::{Filter, Form, Item, What};
use crate::mask::Mask;
use crate::names::Names;
use std::io::{self, Write};
use stealtime_scheduler::event::{Event, EventKind, Standing, Waits, WakeSource};
use stealtime_scheduler::ids::{CoreId, HostLockId, VcpuId};
use stealtime_scheduler::time::Nanos;

/// The process of the cores' tracks, that of the host locks', and the first of the VMs'.
const CORES: usize = 1;
const LOCKS: usize = 2;
const VMS: usize = 3;

/// What is under way on a track: what it is called, and since when.
type Span = Option<(String, Nanos)>;

/// What is known of a vCPU.
#[derive(Clone, Debug, Default)]
struct Vcpu {
    span: Span,
    core: Option<CoreId>,
    ready: bool,
    standing: Standing,
    /// The arrow that ends where it next runs.
    woken: Option<u64>,
}

/// The document for viewers.
#[derive(Debug)]
pub struct Chrome<W> {
    names: Names,
    filter: Filter,
    to: W,
    processes: Vec<usize>,
    vcpus: Vec<Vcpu>,
    cores: Vec<Span>,
    locks: Vec<Span>,
    last: Nanos,
    arrows: u64,
    ready: u64,
    begun: bool,
}

/// Where a track is.
#[derive(Clone, Copy)]
struct Track {
    process: usize,
    thread: usize,
}

/// Microseconds with three digits behind the point: nothing of a nanosecond is lost.
struct Micros(Nanos);

impl std::fmt::Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.0 / 1_000, self.0.0 % 1_000)
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

impl<W: Write> Chrome<W> {
    /// A document of a run with these names, of what this filter lets through.
    pub fn new(names: Names, filter: Filter, to: W) -> Self {
        let ids = (0..names.vcpus()).filter_map(|id| u32::try_from(id).ok());
        let mut vms: Vec<&str> = Vec::new();
        let processes = ids
            .map(|id| {
                let (vm, _) = names.parts(VcpuId(id));
                if vms.last() != Some(&vm) {
                    vms.push(vm);
                }
                VMS + vms.len() - 1
            })
            .collect();
        Self {
            processes,
            vcpus: vec![Vcpu::default(); names.vcpus()],
            cores: vec![None; names.cores()],
            locks: vec![None; names.host_locks().len()],
            names,
            filter,
            to,
            last: Nanos::ZERO,
            arrows: 0,
            ready: 0,
            begun: false,
        }
    }

    fn row(&mut self, row: &str) -> io::Result<()> {
        let comma = if std::mem::replace(&mut self.begun, true) {
            ",\n"
        } else {
            "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"
        };
        write!(self.to, "{comma}{row}")
    }

    fn name(&mut self, what: &str, track: Track, name: &str) -> io::Result<()> {
        let Track { process, thread } = track;
        let name = quoted(name);
        self.row(&format!(
            r#"{{"ph":"M","name":"{what}","pid":{process},"tid":{thread},"args":{{"name":{name}}}}}"#
        ))
    }

    fn head(&mut self) -> io::Result<()> {
        let of = |process, thread| Track { process, thread };
        self.name("process_name", of(CORES, 0), "cores")?;
        for index in 0..self.cores.len() {
            let core = CoreId(u16::try_from(index).unwrap_or(u16::MAX));
            let name = self.names.core_in_words(core);
            self.name("thread_name", of(CORES, index + 1), &name)?;
        }
        if !self.locks.is_empty() {
            self.name("process_name", of(LOCKS, 0), "host locks")?;
        }
        for index in 0..self.locks.len() {
            let name = self.names.host_locks()[index].clone();
            self.name("thread_name", of(LOCKS, index + 1), &name)?;
        }
        for index in 0..self.vcpus.len() {
            let Some(track) = self.track(index) else {
                continue;
            };
            let id = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            let (vm, vcpu) = self.names.parts(id);
            let (vm, vcpu) = (vm.to_owned(), vcpu.to_owned());
            self.name("process_name", of(track.process, 0), &vm)?;
            self.name("thread_name", track, &vcpu)?;
        }
        Ok(())
    }

    /// The track of a vCPU, if that is asked for.
    fn track(&self, vcpu: usize) -> Option<Track> {
        let asked = self.filter.vcpus.as_ref();
        let asked = asked.is_none_or(|all| all.get(vcpu).copied().unwrap_or(false));
        let process = self.processes.get(vcpu).copied()?;
        asked.then_some(Track {
            process,
            thread: vcpu + 1,
        })
    }

    /// Writes what was under way on a track up to `to`, as far as it lies in the time asked for.
    fn span(&mut self, track: Option<Track>, span: Span, to: Nanos) -> io::Result<()> {
        let (Some(Track { process, thread }), Some((name, since))) = (track, span) else {
            return Ok(());
        };
        let (from, to) = (since.max(self.filter.from), to.min(self.filter.to));
        if to <= from {
            return Ok(());
        }
        let (name, at, length) = (quoted(&name), Micros(from), Micros(to.since(from)));
        self.row(&format!(
            r#"{{"ph":"X","name":{name},"pid":{process},"tid":{thread},"ts":{at},"dur":{length}}}"#
        ))
    }

    /// The vCPU is in another state from now on.
    fn state(&mut self, at: Nanos, vcpu: usize, state: Option<String>) -> io::Result<()> {
        let core = self.vcpus[vcpu].core;
        let span = std::mem::replace(&mut self.vcpus[vcpu].span, state.map(|name| (name, at)));
        let wanted = self.filter.mask.meets(PROC)
            && (self.filter.core.is_none() || self.filter.core == core);
        let track = self.track(vcpu).filter(|_| wanted);
        self.span(track, span, at)
    }

    /// Somebody else, or nobody, is on the core from now on.
    fn core(&mut self, at: Nanos, core: CoreId, vcpu: Option<(usize, Standing)>) -> io::Result<()> {
        let names = &self.names;
        let name = vcpu.map(|(vcpu, standing)| {
            let id = VcpuId(u32::try_from(vcpu).unwrap_or(u32::MAX));
            let name = names.vcpu(id).to_owned();
            if standing == Standing::default() {
                name
            } else {
                format!("{name} ({})", stands(standing))
            }
        });
        let Some(slot) = self.cores.get_mut(core.index()) else {
            return Ok(());
        };
        let span = std::mem::replace(slot, name.map(|name| (name, at)));
        let wanted =
            self.filter.mask.meets(PROC) && self.filter.core.is_none_or(|asked| asked == core);
        let track = Track {
            process: CORES,
            thread: core.index() + 1,
        };
        self.span(Some(track).filter(|_| wanted), span, at)
    }

    fn lock(&mut self, at: Nanos, lock: HostLockId, holder: Option<String>) -> io::Result<()> {
        let Some(slot) = self.locks.get_mut(lock.index()) else {
            return Ok(());
        };
        let span = std::mem::replace(slot, holder.map(|name| (name, at)));
        let track = Track {
            process: LOCKS,
            thread: lock.index() + 1,
        };
        let wanted = self.filter.mask.meets(LOCK);
        self.span(Some(track).filter(|_| wanted), span, at)
    }

    /// It begins or ceases to wait for a core.
    fn wait(&mut self, at: Nanos, vcpu: usize, ready: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.vcpus[vcpu].ready, ready) == ready {
            return Ok(());
        }
        self.ready = if ready {
            self.ready + 1
        } else {
            self.ready.saturating_sub(1)
        };
        if !self.filter.mask.meets(PROC) || !(self.filter.from..=self.filter.to).contains(&at) {
            return Ok(());
        }
        let (n, at) = (self.ready, Micros(at));
        self.row(&format!(
            r#"{{"ph":"C","name":"ready vCPUs","pid":{CORES},"ts":{at},"args":{{"ready":{n}}}}}"#
        ))
    }

    fn arrow(&mut self, at: Nanos, track: Track, phase: &str, id: u64) -> io::Result<()> {
        let Track { process, thread } = track;
        let at = Micros(at);
        self.row(&format!(
            r#"{{"ph":"{phase}","bp":"e","cat":"wake","name":"wake","id":{id},"pid":{process},"tid":{thread},"ts":{at}}}"#
        ))
    }

    /// An arrow begins at who woke the vCPU.
    fn woken(&mut self, at: Nanos, vcpu: usize, by: WakeSource, shown: bool) -> io::Result<()> {
        let from = match by {
            WakeSource::Timer => None,
            WakeSource::Interrupt(from) => from,
            WakeSource::HostLock(from) | WakeSource::GuestLock(from) => Some(from),
        };
        let ends = [
            from.and_then(|from| self.track(from.index())),
            self.track(vcpu),
        ];
        let [Some(from), Some(_)] = ends else {
            return Ok(());
        };
        if !shown || !self.filter.mask.meets(PROC) {
            return Ok(());
        }
        self.arrows += 1;
        self.vcpus[vcpu].woken = Some(self.arrows);
        self.arrow(at, from, "s", self.arrows)
    }

    fn ran(&mut self, at: Nanos, vcpu: usize, core: CoreId) -> io::Result<()> {
        self.state(at, vcpu, Some("running".to_owned()))?;
        self.vcpus[vcpu].core = Some(core);
        self.wait(at, vcpu, false)?;
        self.core(at, core, Some((vcpu, self.vcpus[vcpu].standing)))?;
        match (self.vcpus[vcpu].woken.take(), self.track(vcpu)) {
            (Some(arrow), Some(track)) => self.arrow(at, track, "f", arrow),
            _ => Ok(()),
        }
    }

    /// It leaves its core, if it is on one, for another state.
    fn left(
        &mut self,
        at: Nanos,
        vcpu: usize,
        state: Option<String>,
        ready: bool,
    ) -> io::Result<()> {
        self.state(at, vcpu, state)?;
        if let Some(core) = self.vcpus[vcpu].core.take() {
            self.core(at, core, None)?;
        }
        self.wait(at, vcpu, ready)
    }

    fn event(&mut self, event: &Event, shown: bool) -> io::Result<()> {
        let (at, vcpu) = (event.at, event.vcpu.index());
        if vcpu >= self.vcpus.len() {
            return Ok(());
        }
        let state = |name: &str| Some(name.to_owned());
        match event.kind {
            EventKind::Admitted => self.left(at, vcpu, state("ready"), true)?,
            EventKind::Woken(by) => {
                self.left(at, vcpu, state("ready"), true)?;
                self.woken(at, vcpu, by, shown)?;
            }
            EventKind::Granted(_) => self.state(at, vcpu, state("granted"))?,
            EventKind::Running(core) => self.ran(at, vcpu, core)?,
            EventKind::Exited(_) => self.state(at, vcpu, state("hypervisor"))?,
            EventKind::Resumed => self.state(at, vcpu, state("running"))?,
            EventKind::Preempted(..) => self.left(at, vcpu, state("preempted"), true)?,
            EventKind::Yielded(_) => self.left(at, vcpu, state("ready"), true)?,
            EventKind::Blocked(on) => {
                let name = match on {
                    Waits::Idle => "idle".to_owned(),
                    Waits::Sleep => "asleep".to_owned(),
                    Waits::Host => "waits in the hypervisor".to_owned(),
                    Waits::GuestLock(lock) => format!("waits for {}", self.names.guest_lock(lock)),
                    Waits::HostLock(lock, _) => format!("waits for {}", self.names.host_lock(lock)),
                };
                self.left(at, vcpu, Some(name), false)?;
            }
            EventKind::Retired(_) => self.left(at, vcpu, None, false)?,
            EventKind::HostLockTaken(lock) => {
                let holder = self.names.vcpu(event.vcpu).to_owned();
                self.lock(at, lock, Some(holder))?;
            }
            EventKind::HostLockReleased(lock) => self.lock(at, lock, None)?,
            EventKind::Standing(standing) => {
                self.vcpus[vcpu].standing = standing;
                if let Some(core) = self.vcpus[vcpu].core {
                    self.core(at, core, Some((vcpu, standing)))?;
                }
            }
            _ => {}
        }
        self.instant(event, shown)
    }

    /// What is no state and no lock is an instant on its vCPU's track.
    fn instant(&mut self, event: &Event, shown: bool) -> io::Result<()> {
        let of_states = Mask::of(&event.kind).meets(PROC)
            || matches!(
                event.kind,
                EventKind::HostLockTaken(_)
                    | EventKind::HostLockReleased(_)
                    | EventKind::Exited(_)
                    | EventKind::Resumed
                    | EventKind::Mark(_)
            );
        let track = self.track(event.vcpu.index());
        let (true, false, Some(Track { process, thread })) = (shown, of_states, track) else {
            return Ok(());
        };
        let name = quoted(&Words(&What::Event(*event), &self.names).to_string());
        let at = Micros(event.at);
        self.row(&format!(
            r#"{{"ph":"i","s":"t","name":{name},"pid":{process},"tid":{thread},"ts":{at}}}"#
        ))
    }
}

/// The classes that decide about spans.
const PROC: Mask = Mask::PROCESS;
const LOCK: Mask = Mask::LOCKS;

impl<W: Write> Form for Chrome<W> {
    fn item(&mut self, item: &Item, shown: bool) -> io::Result<()> {
        if !self.begun {
            self.head()?;
        }
        self.last = item.at;
        match &item.what {
            What::Event(event) => self.event(event, shown),
            What::Input(_) | What::Effect(_) => Ok(()),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.begun {
            self.head()?;
        }
        let last = self.last;
        for vcpu in 0..self.vcpus.len() {
            self.state(last, vcpu, None)?;
        }
        for index in 0..self.cores.len() {
            self.core(last, CoreId(u16::try_from(index).unwrap_or(u16::MAX)), None)?;
        }
        for index in 0..self.locks.len() {
            self.lock(
                last,
                HostLockId(u16::try_from(index).unwrap_or(u16::MAX)),
                None,
            )?;
        }
        self.to.write_all(b"\n]}\n")?;
        self.to.flush()
    }
}
