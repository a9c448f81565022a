//! The machine, event by event.

use std::time::Duration;

use super::*;

const TTL_MS: u64 = 10_000;

fn at(ms: u64) -> Moment {
    Moment::from_millis(ms)
}

fn term() -> Term {
    Term::new(7).unwrap()
}

fn rules() -> Rules {
    Rules {
        reserve: Duration::from_millis(TTL_MS / 20),
        guard_silence: Duration::from_millis(TTL_MS / 2),
        drain: Duration::from_secs(30),
        wait: None,
        once: false,
        restart: false,
        exit_on_lost: false,
        fences: false,
        probe: None,
        farewell: Duration::from_secs(5),
    }
}

fn elected() -> Event {
    Event::Elected { term: term(), valid_until: at(TTL_MS) }
}

/// A machine whose program runs from 2 ms on, with a guard that listens.
fn working(rules: Rules) -> Machine {
    let mut machine = Machine::new(rules, at(0));
    let begun = machine.on(at(1), elected());
    let start = Action::Start { term: term(), valid_until: at(TTL_MS) };
    assert_eq!(begun, [Action::Hook(Hook::Elected), start]);
    machine.on(at(2), Event::Heard(at(TTL_MS)));
    assert_eq!(machine.on(at(2), Event::Started(2)), [Action::Show(Shown::Leading)]);
    machine
}

/// What follows when nothing of the tree is alive any more.
fn over(machine: &mut Machine, ms: u64) -> Vec<Action> {
    machine.on(at(ms), Event::Over)
}

/// The actions without those that only tell.
fn deeds(actions: Vec<Action>) -> Vec<Action> {
    let only_tells = |action: &Action| matches!(action, Action::Show(_) | Action::Hook(_));
    actions.into_iter().filter(|action| !only_tells(action)).collect()
}

#[test]
fn a_program_that_ends_gives_the_office_up_only_when_nothing_of_it_is_alive() {
    let mut machine = working(rules());
    let ended = machine.on(at(100), Event::Exited(Status::Code(3)));
    assert_eq!(deeds(ended), [], "its children may be alive");
    assert_eq!(deeds(over(&mut machine, 200)), [Action::WorkEnded, Action::Leave]);
    let left = machine.on(at(300), Event::Left);
    assert_eq!(left, [Action::Exit(Ending::Program(3))]);
}

#[test]
fn a_store_that_does_not_listen_is_not_waited_for_for_ever() {
    let mut machine = working(rules());
    machine.on(at(100), Event::Exited(Status::Code(0)));
    over(&mut machine, 200);
    assert_eq!(machine.wake_at(), Some(at(5_200)));
    assert_eq!(machine.on(at(5_200), Event::Tick), [Action::Exit(Ending::Program(0))]);
}

#[test]
fn a_lease_that_ends_stops_the_program_a_reserve_before_and_then_it_stands_again() {
    let mut machine = working(rules());
    let stop = machine.on(at(9_000), Event::StopBy { by: at(TTL_MS) });
    assert_eq!(deeds(stop), [Action::Stop { kill_at: at(TTL_MS - 500) }]);
    machine.on(at(9_100), Event::Exited(Status::Signal(15)));
    let ended = over(&mut machine, 9_110);
    assert_eq!(ended, [Action::WorkEnded, Action::Show(Shown::Standby)]);
    let again = Event::Elected { term: Term::new(8).unwrap(), valid_until: at(30_000) };
    let start = Action::Start { term: Term::new(8).unwrap(), valid_until: at(30_000) };
    assert_eq!(deeds(machine.on(at(20_000), again)), [start]);
}

/// A guard that was stopped hears no order either: the wrapper does not leave the end of the tree to
/// it alone, and is done before the lease is.
#[test]
fn a_guard_that_does_not_end_the_tree_in_time_is_killed_before_the_lease_is_over() {
    let mut machine = working(rules());
    machine.on(at(9_000), Event::StopBy { by: at(TTL_MS) });
    assert_eq!(machine.wake_at(), Some(at(9_625)), "the guard has its turn at 9,500");
    assert_eq!(deeds(machine.on(at(9_625), Event::Tick)), [Action::Kill]);
    assert_eq!(machine.wake_at(), Some(at(9_875)));
    assert_eq!(deeds(machine.on(at(9_875), Event::Tick)), [Action::KillGuard]);
    assert_eq!(deeds(over(&mut machine, 9_880)), [Action::WorkEnded]);
}

#[test]
fn a_term_that_is_gone_kills_at_once_and_ends_the_command_if_asked_to() {
    let mut machine = working(Rules { exit_on_lost: true, ..rules() });
    assert_eq!(deeds(machine.on(at(500), Event::Lost)), [Action::Kill]);
    machine.on(at(501), Event::Exited(Status::Signal(9)));
    assert_eq!(deeds(over(&mut machine, 502)), [Action::WorkEnded, Action::Leave]);
    assert_eq!(machine.on(at(503), Event::Left), [Action::Exit(Ending::Lost)]);
}

/// After a pause of this process the clock knows first; what the guard did meanwhile is on its way.
#[test]
fn work_is_said_to_outlive_its_lease_only_if_the_guard_says_so() {
    let overrun = || {
        let mut machine = working(rules());
        machine.on(at(20_000), Event::Lost);
        assert_eq!(deeds(machine.on(at(20_001), Event::Overran)), [Action::AskGuard]);
        machine
    };
    let is_alarm = |action: &Action| matches!(action, Action::Alarm { .. });
    let mut ended = overrun();
    assert_eq!(deeds(ended.on(at(20_002), Event::Exited(Status::Signal(9)))), []);
    assert!(!over(&mut ended, 20_003).iter().any(is_alarm));
    assert!(!ended.on(at(60_000), Event::Tick).iter().any(is_alarm));

    let mut lives = overrun();
    let told = deeds(lives.on(at(20_002), Event::Alive));
    assert_eq!(told, [Action::Alarm { has_answered: true }]);
    assert_eq!(deeds(lives.on(at(20_003), Event::Alive)), [], "once");

    let mut silent = overrun();
    assert!(!deeds(silent.on(at(20_500), Event::Tick)).iter().any(is_alarm));
    let told = deeds(silent.on(at(20_501), Event::Tick));
    assert!(told.contains(&Action::Alarm { has_answered: false }), "{told:?}");
}

#[test]
fn a_guard_that_does_not_do_what_it_is_told_is_killed_again_and_again() {
    let mut machine = working(rules());
    machine.on(at(500), Event::Lost);
    assert_eq!(machine.wake_at(), Some(at(750)));
    assert_eq!(machine.on(at(750), Event::Tick), [Action::KillGuard]);
    assert_eq!(machine.on(at(1_000), Event::Tick), [Action::KillGuard]);
}

#[test]
fn a_guard_that_acknowledges_no_lease_guards_nothing() {
    let mut machine = working(rules());
    let told = machine.on(at(3_000), Event::Extended { valid_until: at(13_000) });
    assert_eq!(told, [Action::Lease(at(13_000))]);
    machine.on(at(6_000), Event::Extended { valid_until: at(16_000) });
    assert_eq!(machine.wake_at(), Some(at(8_000)), "the oldest one counts");
    assert_eq!(machine.on(at(8_000), Event::Tick), [Action::Kill, Action::KillGuard]);
    assert_eq!(deeds(over(&mut machine, 8_001)), [Action::WorkEnded], "it stands again");
}

#[test]
fn a_guard_that_acknowledges_is_left_alone() {
    let mut machine = working(rules());
    machine.on(at(3_000), Event::Extended { valid_until: at(13_000) });
    machine.on(at(3_001), Event::Heard(at(13_000)));
    assert_eq!(machine.wake_at(), None);
}

#[test]
fn a_guard_that_was_killed_ends_the_program_as_killed() {
    let mut machine = working(rules());
    assert_eq!(deeds(over(&mut machine, 100)), [Action::WorkEnded, Action::Leave]);
    assert_eq!(machine.on(at(101), Event::Left), [Action::Exit(Ending::Program(137))]);
}

#[test]
fn a_user_who_ends_it_lets_the_program_drain_while_it_leads_on() {
    let mut machine = working(rules());
    assert_eq!(deeds(machine.on(at(1_000), Event::Terminate(15))), [Action::Forward(15)]);
    let renewed = machine.on(at(3_000), Event::Extended { valid_until: at(13_000) });
    assert_eq!(renewed, [Action::Lease(at(13_000))]);
    machine.on(at(3_001), Event::Heard(at(13_000)));
    assert_eq!(machine.wake_at(), Some(at(31_000)));
    machine.on(at(4_000), Event::Exited(Status::Code(0)));
    assert_eq!(deeds(over(&mut machine, 4_001)), [Action::WorkEnded, Action::Leave]);
    assert_eq!(machine.on(at(4_002), Event::Left), [Action::Exit(Ending::Program(0))]);
}

#[test]
fn a_drain_that_takes_too_long_or_is_asked_for_twice_is_a_kill() {
    let mut slow = working(rules());
    slow.on(at(1_000), Event::Terminate(15));
    assert_eq!(deeds(slow.on(at(31_000), Event::Tick)), [Action::Kill]);
    let mut twice = working(rules());
    twice.on(at(1_000), Event::Terminate(2));
    assert_eq!(deeds(twice.on(at(1_100), Event::Terminate(2))), [Action::Kill]);
}

#[test]
fn a_lease_that_ends_in_a_drain_overtakes_it() {
    let mut machine = working(rules());
    machine.on(at(1_000), Event::Terminate(15));
    let stop = machine.on(at(9_000), Event::StopBy { by: at(TTL_MS) });
    assert_eq!(deeds(stop), [Action::Stop { kill_at: at(TTL_MS - 500) }]);
    machine.on(at(9_500), Event::Exited(Status::Signal(9)));
    assert_eq!(deeds(over(&mut machine, 9_501)), [Action::WorkEnded, Action::Leave]);
    assert_eq!(machine.on(at(9_502), Event::Left), [Action::Exit(Ending::Program(137))]);
}

#[test]
fn a_standby_that_is_asked_to_end_leaves_and_a_second_signal_does_not_wait() {
    let mut machine = Machine::new(rules(), at(0));
    assert_eq!(deeds(machine.on(at(1), Event::Terminate(15))), [Action::Leave]);
    assert_eq!(machine.on(at(2), Event::Terminate(15)), [Action::Exit(Ending::Asked)]);
    let mut late = Machine::new(rules(), at(0));
    late.on(at(1), Event::Terminate(15));
    assert_eq!(deeds(late.on(at(2), elected())), [Action::WorkEnded], "it starts nothing");
}

#[test]
fn other_signals_are_the_programs_own_business() {
    let mut machine = Machine::new(rules(), at(0));
    assert_eq!(machine.on(at(1), Event::Signal(1)), []);
    let mut machine = working(rules());
    assert_eq!(machine.on(at(3), Event::Signal(1)), [Action::Forward(1)]);
    assert_eq!(machine.wake_at(), None, "nothing is stopped by it");
}

#[test]
fn whoever_waited_in_vain_leaves() {
    let mut waits = Machine::new(Rules { wait: Some(Duration::from_secs(3)), ..rules() }, at(0));
    waits.on(at(1), Event::OtherLeads);
    assert_eq!(waits.wake_at(), Some(at(3_000)));
    assert_eq!(deeds(waits.on(at(3_000), Event::Tick)), [Action::Leave]);
    assert_eq!(waits.on(at(3_001), Event::Left), [Action::Exit(Ending::NotElected)]);
    let mut once = Machine::new(Rules { once: true, ..rules() }, at(0));
    assert_eq!(deeds(once.on(at(1), Event::OtherLeads)), [Action::Leave]);
    assert_eq!(once.on(at(2), Event::Left), [Action::Exit(Ending::NotElected)]);
}

#[test]
fn a_wait_is_over_once_elected() {
    let mut machine = working(Rules { wait: Some(Duration::from_secs(3)), ..rules() });
    assert_eq!(machine.on(at(4_000), Event::Tick), []);
}

#[test]
fn a_program_that_restarts_stands_again_when_it_has_ended() {
    let mut machine = working(Rules { restart: true, ..rules() });
    machine.on(at(100), Event::Exited(Status::Code(1)));
    let failed = [Action::WorkFailed, Action::WorkEnded];
    assert_eq!(deeds(over(&mut machine, 101)), failed, "the next campaign may have to wait");
    assert_eq!(deeds(machine.on(at(200), Event::Terminate(15))), [Action::Leave]);
}

#[test]
fn a_program_that_cannot_be_started_ends_the_command_even_if_it_restarts() {
    let mut machine = Machine::new(Rules { restart: true, ..rules() }, at(0));
    machine.on(at(1), elected());
    machine.on(at(2), Event::Failed(127));
    assert_eq!(deeds(over(&mut machine, 3)), [Action::WorkEnded, Action::Leave]);
    assert_eq!(machine.on(at(4), Event::Left), [Action::Exit(Ending::Program(127))]);
}

#[test]
fn nothing_starts_before_whoever_led_before_is_fenced() {
    let fenced = |is_done| Event::Fenced { term: term(), is_done };
    let fences = || Rules { fences: true, ..rules() };
    let mut machine = Machine::new(fences(), at(0));
    assert_eq!(deeds(machine.on(at(1), elected())), [Action::Fence { term: term() }]);
    machine.on(at(3_000), Event::Extended { valid_until: at(13_000) });
    let start = Action::Start { term: term(), valid_until: at(13_000) };
    assert_eq!(deeds(machine.on(at(4_000), fenced(true))), [start]);

    let give_back = [Action::CancelFence, Action::WorkEnded];
    let mut failed = Machine::new(fences(), at(0));
    failed.on(at(1), elected());
    let given_back = deeds(failed.on(at(2), fenced(false)));
    assert_eq!((&given_back[0], &given_back[1..]), (&Action::WorkFailed, &give_back[..]));
    let mut late = Machine::new(fences(), at(0));
    late.on(at(1), elected());
    assert_eq!(deeds(late.on(at(9_000), Event::StopBy { by: at(TTL_MS) })), give_back);
    assert_eq!(late.on(at(9_001), fenced(true)), [], "that term is given back");

    let mut again = Machine::new(fences(), at(0));
    again.on(at(1), elected());
    let earlier = Event::Fenced { term: Term::NONE, is_done: true };
    assert_eq!(again.on(at(2), earlier), [], "another one may have led since");
}

#[test]
fn a_program_that_does_not_answer_its_probe_must_not_lead_for_ever() {
    let probe = ProbeRules { limit: Duration::from_secs(5), start: Duration::from_secs(30) };
    let mut early = Machine::new(Rules { probe: Some(probe), ..rules() }, at(0));
    early.on(at(1), elected());
    early.on(at(1), Event::Heard(at(TTL_MS)));
    early.on(at(1), Event::Proved { asked_at: at(1) });
    early.on(at(2), Event::Started(2));
    early.on(at(4), Event::Proved { asked_at: at(3) });
    assert_eq!(early.wake_at(), Some(at(5_003)), "what was proved before it ran proves nothing");
    let mut machine = working(Rules { probe: Some(probe), ..rules() });
    assert_eq!(machine.wake_at(), Some(at(30_002)), "its first answer has its own time");
    machine.on(at(2_100), Event::Proved { asked_at: at(2_000) });
    assert_eq!(machine.wake_at(), Some(at(7_000)));
    machine.on(at(4_100), Event::Proved { asked_at: at(4_000) });
    machine.on(at(4_200), Event::Proved { asked_at: at(3_000) });
    assert_eq!(machine.on(at(8_999), Event::Tick), []);
    assert_eq!(machine.on(at(9_000), Event::Tick), [Action::Resign]);
    assert_eq!(machine.on(at(9_001), Event::Proved { asked_at: at(9_000) }), []);
    let stop = machine.on(at(9_002), Event::StopBy { by: at(12_000) });
    assert_eq!(deeds(stop), [Action::Stop { kill_at: at(11_500) }]);
    assert_eq!(machine.wake_at(), Some(at(11_625)), "no answer is waited for, only the end");
    assert_eq!(deeds(over(&mut machine, 9_100)), [Action::WorkFailed, Action::WorkEnded]);
}

#[test]
fn hooks_tell_of_the_end_exactly_once() {
    let hooks = |actions: Vec<Action>| {
        actions.into_iter().filter(|action| *action == Action::Hook(Hook::Lost)).count()
    };
    let mut machine = working(rules());
    let mut count = hooks(machine.on(at(9_000), Event::StopBy { by: at(TTL_MS) }));
    count += hooks(machine.on(at(9_100), Event::Lost));
    count += hooks(machine.on(at(9_101), Event::Exited(Status::Signal(9))));
    count += hooks(over(&mut machine, 9_102));
    assert_eq!(count, 1);
}

#[test]
fn jeopardy_is_told_while_the_program_runs() {
    let mut machine = working(rules());
    let warned = machine.on(at(5_000), Event::Jeopardy);
    assert_eq!(warned, [Action::Hook(Hook::Jeopardy), Action::Show(Shown::Jeopardy)]);
    assert_eq!(machine.on(at(5_100), Event::Recovered), [Action::Show(Shown::Leading)]);
    machine.on(at(9_000), Event::StopBy { by: at(TTL_MS) });
    assert_eq!(machine.on(at(9_001), Event::Jeopardy), []);
}
