//! A trace as a document for viewers: the JSON form that Chrome made known, which Perfetto's viewer
//! (ui.perfetto.dev) opens too.
//!
//! A track a core with who is on it, a track a host lock with who holds it, a track a vCPU with its
//! states and, as instants, what befell it; arrows from who woke to who was woken; as counters the
//! number of ready vCPUs and the length of each core's run queue. The classes asked for decide what
//! there is: `proc` states and counters, `lock` the tracks of locks, the others instants.

mod document;

use super::words::{Words, stands};
use super::{Filter, Form, Item, What};
use crate::mask::Mask;
use crate::names::Names;
use document::{Document, End, Track};
use std::io::{self, Write};
use stealtime_scheduler::event::{Event, EventKind, Queues, Standing, Waits, WakeSource};
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
    document: Document<W>,
    processes: Vec<usize>,
    vcpus: Vec<Vcpu>,
    cores: Vec<Span>,
    locks: Vec<Span>,
    last: Nanos,
    arrows: u64,
    ready: usize,
    queues: Queues,
    /// The lengths of the queues as they were last written.
    lengths: Vec<usize>,
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
            queues: Queues::new(names.vcpus(), names.cores()),
            lengths: vec![0; names.cores()],
            names,
            filter,
            document: Document::new(to),
            last: Nanos::ZERO,
            arrows: 0,
            ready: 0,
        }
    }

    fn head(&mut self) -> io::Result<()> {
        let of = |process, thread| Track { process, thread };
        self.document.name(of(CORES, 0), "cores")?;
        for index in 0..self.cores.len() {
            let core = CoreId(u16::try_from(index).unwrap_or(u16::MAX));
            let name = self.names.core_in_words(core);
            self.document.name(of(CORES, index + 1), &name)?;
        }
        if !self.locks.is_empty() {
            self.document.name(of(LOCKS, 0), "host locks")?;
        }
        for index in 0..self.locks.len() {
            let name = self.names.host_locks()[index].clone();
            self.document.name(of(LOCKS, index + 1), &name)?;
        }
        for index in 0..self.vcpus.len() {
            let Some(track) = self.track(index) else {
                continue;
            };
            let id = VcpuId(u32::try_from(index).unwrap_or(u32::MAX));
            let (vm, vcpu) = self.names.parts(id);
            let (vm, vcpu) = (vm.to_owned(), vcpu.to_owned());
            self.document.name(of(track.process, 0), &vm)?;
            self.document.name(track, &vcpu)?;
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
        let (Some(track), Some((name, since))) = (track, span) else {
            return Ok(());
        };
        let (from, to) = (since.max(self.filter.from), to.min(self.filter.to));
        if to <= from {
            return Ok(());
        }
        self.document.span(track, &name, from, to)
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
        self.document
            .count(CORES, "ready vCPUs", "ready", at, self.ready)
    }

    /// Writes the length of each queue that has changed.
    fn queued(&mut self, at: Nanos) -> io::Result<()> {
        let shown =
            self.filter.mask.meets(PROC) && (self.filter.from..=self.filter.to).contains(&at);
        for index in 0..self.lengths.len() {
            let length = self.queues.lengths()[index];
            let core = CoreId(u16::try_from(index).unwrap_or(u16::MAX));
            let asked = self.filter.core.is_none_or(|asked| asked == core);
            if shown && asked && std::mem::replace(&mut self.lengths[index], length) != length {
                let name = format!("queue of {}", self.names.core_in_words(core));
                self.document.count(CORES, &name, "queued", at, length)?;
            }
        }
        Ok(())
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
        self.document.arrow(from, End::Tail, self.arrows, at)
    }

    fn ran(&mut self, at: Nanos, vcpu: usize, core: CoreId) -> io::Result<()> {
        self.state(at, vcpu, Some("running".to_owned()))?;
        self.vcpus[vcpu].core = Some(core);
        self.wait(at, vcpu, false)?;
        self.core(at, core, Some((vcpu, self.vcpus[vcpu].standing)))?;
        match (self.vcpus[vcpu].woken.take(), self.track(vcpu)) {
            (Some(arrow), Some(track)) => self.document.arrow(track, End::Head, arrow, at),
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
        self.queues.event(event);
        self.queued(at)?;
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
        let (true, false, Some(track)) = (shown, of_states, track) else {
            return Ok(());
        };
        let name = Words(&What::Event(*event), &self.names).to_string();
        self.document.instant(track, &name, event.at)
    }
}

/// The classes that decide about spans.
const PROC: Mask = Mask::PROCESS;
const LOCK: Mask = Mask::LOCKS;

impl<W: Write> Form for Chrome<W> {
    fn item(&mut self, item: &Item, shown: bool) -> io::Result<()> {
        if !self.document.begun() {
            self.head()?;
        }
        self.last = item.at;
        match &item.what {
            What::Event(event) => self.event(event, shown),
            What::Input(_) | What::Effect(_) => Ok(()),
        }
    }

    fn end(&mut self) -> io::Result<()> {
        if !self.document.begun() {
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
        self.document.end()
    }
}
