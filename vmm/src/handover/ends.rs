//! How runs end: by faults, by a policy that fails, by the programs' ends, and at any moment.

use super::*;

#[test]
fn a_guest_that_faults_takes_its_vm_along_and_nobody_else() {
    let fault = Exit::Fault("triple fault".to_owned());
    let programs = vec![
        spinner(),
        cycle(vec![Turn::Then(Nanos::from_millis(3), fault)]),
        spinner(),
        cycle(vec![Turn::Then(Nanos::ZERO, Exit::Halt)]),
    ];
    let ran = run(
        plan("rr:quantum=1ms", &[0, 0, 1, 0], Nanos::from_millis(300)),
        programs,
        &NEVER,
    );
    ran.check();
    let retired: Vec<_> = (0..4).map(|vcpu| ran.retired(vcpu).unwrap()).collect();
    let fault = RetireReason::Fault;
    assert_eq!(retired, [fault, fault, RetireReason::RunOver, fault]);
    let failures = &ran.verdict.failures;
    assert_eq!(failures.len(), 1);
    assert_eq!(
        (failures[0].vm, failures[0].message.as_str()),
        (VmId(0), "triple fault")
    );
}

#[test]
fn a_panic_in_a_vcpu_thread_ends_its_vm_and_not_the_run() {
    let programs = vec![cycle(vec![call(Call::Nothing), Turn::Panic]), spinner()];
    let ran = run(
        plan("rr:quantum=1ms", &[0, 1], Nanos::from_millis(60)),
        programs,
        &NEVER,
    );
    ran.check();
    assert_eq!(ran.retired(0), Some(RetireReason::Fault));
    assert_eq!(ran.retired(1), Some(RetireReason::RunOver));
    let message = &ran.verdict.failures[0].message;
    assert!(message.contains("the mock panics"), "{message}");
}

/// Fails when it is first asked.
#[derive(Debug)]
struct Clueless;

impl Policy for Clueless {
    fn declare(&mut self, _vcpu: VcpuId, _params: &VcpuParams) -> Result<(), Refused> {
        Ok(())
    }

    fn enqueue(&mut self, _now: Nanos, _vcpu: VcpuId, _why: Enqueue) -> Placed {
        Placed(CoreId(0))
    }

    fn remove(&mut self, _now: Nanos, _vcpu: VcpuId) {}

    fn pick(&mut self, _now: Nanos, _core: CoreId) -> Pick {
        panic!("no idea")
    }

    fn charge(&mut self, _now: Nanos, _vcpu: VcpuId, _ran: Nanos) {}

    fn preempts(&mut self, _now: Nanos, _core: CoreId, _ran: VcpuId, _woken: VcpuId) -> Preempt {
        Preempt::Keep
    }

    fn slice_end(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) -> SliceEnd {
        SliceEnd::Kick
    }

    fn block(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId, _on: Waits) {}

    fn retire(&mut self, _now: Nanos, _core: CoreId, _vcpu: VcpuId) {}
}

#[test]
fn a_policy_that_fails_ends_the_run_and_is_named_for_it_and_not_the_user() {
    let plan = plan("rr", &[0, 1], Nanos::from_secs(60));
    let config = plan.config();
    let policy = Box::new(Clueless);
    let dispatcher =
        Dispatcher::with_policy(&config, &policies::rr::INFO, policy, config.cores).unwrap();
    let ran = run_under(dispatcher, plan, vec![spinner(), spinner()], &NEVER);
    assert!(ran.dismissed.stuck.is_empty(), "{:?}", ran.dismissed.stuck);
    assert!(!ran.measured.interrupted);
    assert_eq!(ran.verdict.violation_count, 1);
    assert_eq!(ran.verdict.violations[0].violation, Violation::Failed);
    let notes = ran.verdict.notes.join(" ");
    assert!(notes.contains("rr") && notes.contains("no idea"), "{notes}");
}

#[test]
fn a_run_ends_when_all_programs_have() {
    let programs = (0..3).map(|_| cycle(vec![call(Call::Nothing), call(Call::Finished)]));
    let ran = run(
        plan("rr", &[0, 0, 0], Nanos::from_secs(60)),
        programs.collect(),
        &NEVER,
    );
    ran.check();
    assert_eq!(ran.retired(2), Some(RetireReason::Finished));
    assert!(!ran.measured.interrupted);
}

#[test]
fn shutdown_ends_every_thread_whenever_it_comes() {
    for round in 0..25 {
        let stop = Arc::new(AtomicBool::new(false));
        let stopper = Arc::clone(&stop);
        let turns = vec![
            Turn::Then(
                Nanos::from_micros(round * 7),
                Exit::Call(Call::Sleep(Nanos(50_000))),
            ),
            Turn::Then(Nanos::from_micros(40), Exit::Call(Call::Yield)),
        ];
        let programs = vec![
            cycle(turns),
            spinner(),
            cycle(vec![Turn::Then(Nanos(9), Exit::Halt)]),
        ];
        let handle = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(round * 333));
            stopper.store(true, Ordering::Relaxed);
        });
        let ran = run(
            plan("rr:quantum=1ms", &[0, 1, 1], Nanos::from_secs(60)),
            programs,
            &stop,
        );
        handle.join().unwrap();
        ran.check();
        assert!(ran.measured.interrupted);
    }
}

#[test]
fn a_thread_that_does_not_react_is_named_and_holds_up_nobody() {
    let let_go = Arc::new(AtomicBool::new(false));
    let programs = vec![cycle(vec![Turn::Deaf(Arc::clone(&let_go))]), spinner()];
    let ran = run(
        plan("rr:quantum=1ms", &[0, 1], Nanos::from_millis(20)),
        programs,
        &NEVER,
    );
    let_go.store(true, Ordering::Relaxed);
    assert_eq!(ran.dismissed.stuck, [VcpuId(0)]);
    assert_eq!(ran.retired(1), Some(RetireReason::RunOver));
}
