//! The kick: a real-time signal that makes a vCPU's thread leave guest code.
//!
//! The handler does one thing: it sets the `immediate_exit` byte of the `kvm_run` page of the thread
//! that it interrupts. Whether the signal comes while guest code runs (`KVM_RUN` returns `EINTR`), or
//! in the few instructions before `KVM_RUN` (the byte makes it return at once), the guest is left.
//!
//! # Ordering
//! The one who kicks first writes what it wants into the run-state word ([`crate::runstate`]), then
//! sends the signal. The vCPU's thread, before it enters, first clears the byte, then moves the word
//! to `Guest`, which fails if something is already wanted. Sending a signal and running its handler
//! order memory as a system call does, and the handler runs in the thread whose byte it sets, so
//! there are two cases:
//! * the word was written before the move to `Guest`: the move fails, and the guest is not entered;
//! * it was written after: then the signal is sent after the move, hence after the byte was cleared,
//!   and the byte or `EINTR` ends the entry.
//!
//! A signal that comes late, for something already dealt with, costs one needless exit at most.
#![expect(
    unsafe_code,
    reason = "a signal handler writes through a raw pointer, and tgkill has no safe form"
)]

use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering, compiler_fence};
use vmm_sys_util::signal::{SIGRTMIN, register_signal_handler};

/// The byte that ends an entry into the guest, in memory that the CPU owns.
#[derive(Clone, Copy, Debug)]
pub struct KickHandle(NonNull<AtomicU8>);

// SAFETY: the pointee is an atomic, and `new` demands that it outlives every use.
unsafe impl Send for KickHandle {}

impl KickHandle {
    /// A handle to the `immediate_exit` byte of a CPU.
    ///
    /// # Safety
    /// `byte` must stay valid for atomic access for as long as a [`Receiver`] made from the handle
    /// exists. The run loop drops the receiver before the CPU.
    #[must_use]
    pub const unsafe fn new(byte: NonNull<AtomicU8>) -> Self {
        Self(byte)
    }
}

thread_local! {
    /// The byte of this thread's CPU; null where there is none. Constant at first and without a
    /// destructor, so that reading it in the handler neither allocates nor registers anything.
    static BYTE: AtomicPtr<AtomicU8> = const { AtomicPtr::new(ptr::null_mut()) };
}

/// Async-signal-safe: two atomic accesses, no lock, no allocation, `errno` untouched.
extern "C" fn on_kick(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // After the thread's own destructors have run there is nothing to tell.
    let _ = BYTE.try_with(|byte| {
        let byte = byte.load(Ordering::Relaxed);
        if !byte.is_null() {
            // SAFETY: the pointer is set only while a `Receiver` of this thread exists, and the byte
            // outlives the receiver (contract of `KickHandle::new`).
            unsafe { &*byte }.store(1, Ordering::Relaxed);
        }
    });
}

/// The signal that kicks. Real-time signals below it are left to others.
fn signal() -> libc::c_int {
    SIGRTMIN() + 3
}

/// Installs the handler, for the whole process and for good.
///
/// # Errors
/// If the kernel refuses the handler.
pub fn install() -> io::Result<()> {
    register_signal_handler(signal(), on_kick)
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))
}

/// A vCPU's thread that can be kicked. Lives on that thread.
#[derive(Debug)]
pub struct Receiver {
    byte: KickHandle,
    /// Bound to the thread whose variable it set.
    not_send: PhantomData<*const ()>,
}

impl Receiver {
    /// Lets kicks of the calling thread reach the CPU behind `handle`.
    #[must_use]
    pub fn register(handle: KickHandle) -> Self {
        BYTE.with(|byte| byte.store(handle.0.as_ptr(), Ordering::Relaxed));
        compiler_fence(Ordering::SeqCst);
        Self {
            byte: handle,
            not_send: PhantomData,
        }
    }

    /// Forgets kicks that have been dealt with. To be called before the run state is moved to
    /// `Guest`, never between that and the entry.
    pub fn rearm(&self) {
        // SAFETY: valid while the receiver exists (contract of `KickHandle::new`).
        unsafe { self.byte.0.as_ref() }.store(0, Ordering::Relaxed);
        // The handler runs in this thread: only the compiler could reorder.
        compiler_fence(Ordering::SeqCst);
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        BYTE.with(|byte| byte.store(ptr::null_mut(), Ordering::Relaxed));
    }
}

/// A thread as others kick it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    process: libc::pid_t,
    thread: libc::pid_t,
}

impl Target {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Self {
        Self {
            process: rustix::process::getpid().as_raw_pid(),
            thread: rustix::thread::gettid().as_raw_pid(),
        }
    }

    /// The thread's number, as the host knows it.
    #[must_use]
    pub const fn thread(self) -> i32 {
        self.thread
    }

    /// Sends the signal. A thread that has ended in the meantime needs no kick.
    pub fn kick(self) {
        // SAFETY: tgkill takes three integers. If the thread has ended, the call fails; if its number
        // was given to another thread of this process, that one runs the handler, which does nothing
        // there but end an entry early.
        unsafe { libc::syscall(libc::SYS_tgkill, self.process, self.thread, signal()) };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_kick_sets_the_byte_of_its_thread_and_of_no_other() {
        install().unwrap();
        let (send, receive) = mpsc::channel();
        let byte = AtomicU8::new(0);
        let other = AtomicU8::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: both bytes outlive the scope.
                let handle = unsafe { KickHandle::new(NonNull::from(&byte)) };
                let receiver = Receiver::register(handle);
                send.send(Target::current()).unwrap();
                while byte.load(Ordering::Relaxed) == 0 {
                    std::hint::spin_loop();
                }
                receiver.rearm();
                assert_eq!(byte.load(Ordering::Relaxed), 0);
            });
            // SAFETY: as above.
            let handle = unsafe { KickHandle::new(NonNull::from(&other)) };
            let _mine = Receiver::register(handle);
            receive.recv().unwrap().kick();
        });
        assert_eq!(other.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_kick_of_a_thread_without_a_cpu_does_nothing() {
        install().unwrap();
        Target::current().kick();
    }
}
