//! The priorities of a thread: its own, for user mode, and the one that counts now.
//!
//! They differ while the thread holds a priority that its wait in the kernel or an interrupt lent it.
//! A kernel priority ends with the return to user mode, where the number is restored and nothing is
//! compared; when the thread is switched off by an AST, which passes through there; or, in the
//! popular account (`sticky-kernel-priority`), not before the thread gives up the core. A
//! thread that stands for an interrupt keeps that priority until it waits again.

use crate::event::Standing;

/// What became of the number on return to user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::policies) enum UserReturn {
    /// It is restored at once.
    NumberRestored,
    /// It stays until the core is given up.
    StickyKernelPriority,
}

impl UserReturn {
    /// By its word in the option `userret`.
    pub(in crate::policies) fn of(word: &str) -> Self {
        if word == "sticky-kernel-priority" {
            Self::StickyKernelPriority
        } else {
            Self::NumberRestored
        }
    }
}

/// Who lent the priority that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lent {
    Nobody,
    Kernel,
    Interrupt,
}

/// The priorities. The smaller goes first.
#[derive(Clone, Copy, Debug)]
pub(in crate::policies) struct Priority {
    user: u8,
    effective: u8,
    lent: Lent,
    /// It returned to user mode with a kernel priority that sticks.
    returned: bool,
}

impl Priority {
    pub(in crate::policies) const fn new(user: u8) -> Self {
        Self {
            user,
            effective: user,
            lent: Lent::Nobody,
            returned: false,
        }
    }

    /// The one that counts now.
    pub(in crate::policies) const fn effective(&self) -> u8 {
        self.effective
    }

    /// For explanations.
    pub(in crate::policies) fn rank(&self) -> String {
        format!("priority {}, the least goes first", self.effective)
    }

    /// The one for user mode.
    pub(in crate::policies) const fn user(&self) -> u8 {
        self.user
    }

    /// Whether its wait in the kernel lent the priority that counts.
    pub(in crate::policies) fn kernel(&self) -> bool {
        self.lent == Lent::Kernel
    }

    /// Whether it stands for an interrupt.
    pub(in crate::policies) fn interrupt(&self) -> bool {
        self.lent == Lent::Interrupt
    }

    /// How its thread stands in the eyes of an observer.
    pub(in crate::policies) fn standing(&self) -> Standing {
        Standing {
            kernel_priority: self.kernel(),
            boosted: self.interrupt(),
            ..Standing::default()
        }
    }

    /// A new priority for user mode. It does not count until it is taken on.
    pub(in crate::policies) const fn set_user(&mut self, user: u8) {
        self.user = user;
    }

    /// Takes on the priority for user mode, if nothing is lent.
    pub(in crate::policies) fn follow(&mut self) {
        if self.lent == Lent::Nobody {
            self.effective = self.user;
        }
    }

    /// It waits, and competes with this priority when it wakes.
    pub(in crate::policies) const fn sleep(&mut self, priority: u8) {
        self.effective = priority;
        self.lent = Lent::Kernel;
        self.returned = false;
    }

    /// It waits, and competes with its own priority when it wakes.
    pub(in crate::policies) const fn sleep_plainly(&mut self) {
        self.effective = self.user;
        self.lent = Lent::Nobody;
        self.returned = false;
    }

    /// It stands for an interrupt from now on.
    pub(in crate::policies) const fn become_interrupt(&mut self, priority: u8) {
        self.effective = priority;
        self.lent = Lent::Interrupt;
    }

    /// An interrupt's thread used a whole slice: four worse, if that is better than the band's last.
    pub(in crate::policies) const fn demote(&mut self, last: u8) {
        if self.effective + 4 < last {
            self.effective += 4;
        }
    }

    /// Passes through user mode and goes on running.
    pub(in crate::policies) fn user_return(&mut self, model: UserReturn) {
        match model {
            UserReturn::NumberRestored => self.restore(),
            UserReturn::StickyKernelPriority => self.returned = true,
        }
    }

    /// A kernel priority ends.
    pub(in crate::policies) fn restore(&mut self) {
        if self.lent != Lent::Interrupt {
            self.lent = Lent::Nobody;
            self.effective = self.user;
        }
        self.returned = false;
    }

    /// Gives up the core: a kernel priority that stuck ends.
    pub(in crate::policies) fn leave(&mut self) {
        if self.returned {
            self.restore();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_priority_ends_with_the_return_to_user_mode_and_an_interrupts_does_not() {
        let mut priority = Priority::new(140);
        priority.sleep(104);
        priority.set_user(150);
        priority.follow();
        assert_eq!(priority.effective(), 104);
        priority.user_return(UserReturn::NumberRestored);
        assert_eq!(priority.effective(), 150);
        priority.become_interrupt(8);
        priority.user_return(UserReturn::NumberRestored);
        assert_eq!(priority.effective(), 8);
        priority.sleep_plainly();
        assert_eq!(priority.effective(), 150);
    }

    #[test]
    fn a_sticky_kernel_priority_ends_when_the_core_is_given_up() {
        let mut priority = Priority::new(140);
        priority.sleep(104);
        // Taken off while still in the kernel.
        priority.leave();
        assert_eq!(priority.effective(), 104);
        priority.user_return(UserReturn::StickyKernelPriority);
        assert_eq!(priority.effective(), 104);
        priority.leave();
        assert_eq!(priority.effective(), 140);
    }

    #[test]
    fn an_interrupt_that_runs_on_and_on_stays_within_its_band() {
        let mut priority = Priority::new(140);
        priority.become_interrupt(8);
        for _ in 0..100 {
            priority.demote(47);
        }
        assert_eq!(priority.effective(), 44);
    }
}
