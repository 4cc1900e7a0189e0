use proptest::prelude::*;

use super::*;

const PACKETS: u32 = 150;
const SPAN: u32 = 100;
const REORDERING: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Unsent,
    InFlight { transmission: u64 },
    Arrived,
    Lost,
}

/// The same rules, kept plainly: every step looks at every packet.
struct Model {
    states: Vec<State>,
    resend: Vec<u32>,
    transmissions: u64,
    answered: Option<u64>,
    /// First transmission after the last probe.
    probe: Option<u64>,
}

impl Model {
    fn new() -> Model {
        let states = vec![State::Unsent; PACKETS as usize];
        Model { states, resend: Vec::new(), transmissions: 0, answered: None, probe: None }
    }

    fn count(&self, wanted: impl Fn(&State) -> bool) -> u32 {
        self.states.iter().filter(|state| wanted(state)).count() as u32
    }

    fn cumulative(&self) -> u32 {
        let first = self.states.iter().position(|&state| state != State::Arrived);
        first.unwrap_or(self.states.len()) as u32
    }

    fn choice(&self) -> Option<u32> {
        let lost = self.resend.iter().find(|&&index| self.states[index as usize] == State::Lost);
        let new = (0..PACKETS).find(|&index| self.states[index as usize] == State::Unsent);
        let new = new.filter(|&index| index - self.cumulative() < SPAN);
        lost.copied().or(new)
    }

    fn send(&mut self, index: u32) {
        self.states[index as usize] = State::InFlight { transmission: self.transmissions };
        self.resend.retain(|&other| other != index);
        self.transmissions += 1;
    }

    fn answer(&mut self, answer: &Answer) -> Change {
        let before = self.count(|&state| state == State::Arrived);
        (answer.index - answer.run..=answer.index).for_each(|index| self.arrive(index));
        (0..answer.cumulative).for_each(|index| self.arrive(index));
        for bit in (0..64).filter(|bit| answer.sack >> bit & 1 == 1) {
            self.arrive(answer.cumulative + 1 + bit);
        }
        self.answered = self.answered.max(Some(answer.transmission));
        let arrived = self.count(|&state| state == State::Arrived) - before;
        Change { arrived, lost_transmission: self.lose(), undone: None }
    }

    fn arrive(&mut self, index: u32) {
        self.states[index as usize] = State::Arrived;
        self.resend.retain(|&other| other != index);
    }

    fn lose(&mut self) -> Option<u64> {
        let answered = self.answered?;
        self.give_up(|transmission| transmission + REORDERING <= answered)
    }

    /// Gives up the oldest transmission in flight.
    fn probe(&mut self) {
        let mut numbers = Vec::new();
        self.give_up(|transmission| {
            numbers.push(transmission);
            false
        });
        let oldest = numbers.into_iter().min();
        self.probe = oldest.map(|_| self.transmissions).or(self.probe);
        self.give_up(|transmission| Some(transmission) == oldest);
    }

    fn give_up(&mut self, mut is_lost: impl FnMut(u64) -> bool) -> Option<u64> {
        let mut given_up: Vec<(u64, u32)> = Vec::new();
        for (index, state) in (0..).zip(&mut self.states) {
            if let State::InFlight { transmission } = *state
                && is_lost(transmission)
            {
                *state = State::Lost;
                given_up.push((transmission, index));
            }
        }
        given_up.sort_unstable();
        self.resend.extend(given_up.iter().map(|&(_, index)| index));
        given_up.last().map(|&(transmission, _)| transmission)
    }

    fn time_out(&mut self) {
        self.probe = None;
        self.resend.clear();
        for (index, state) in (0..).zip(&mut self.states) {
            if matches!(state, State::InFlight { .. } | State::Lost) {
                *state = State::Lost;
                self.resend.push(index);
            }
        }
    }
}

/// A network and a receiver without memory limits.
#[derive(Default)]
struct Far {
    /// Transmissions that may still arrive: number and packet.
    flying: Vec<(u64, u32)>,
    arrivals: Arrivals,
    /// Answers that may still arrive.
    answers: Vec<Answer>,
}

impl Far {
    fn deliver(&mut self, pick: usize) {
        if self.flying.is_empty() {
            return;
        }
        let (transmission, index) = self.flying.remove(pick % self.flying.len());
        self.arrivals.insert(index);
        let (cumulative, sack) = (self.arrivals.cumulative(), self.arrivals.sack());
        // A receiver that answers batches: some of the packets right before it that have come.
        let has_come = |before: &u32| self.arrivals.contains(index - before);
        let run = (1..=index).take(pick % 90).take_while(has_come).count() as u32;
        self.answers.push(Answer { index, transmission, cumulative, sack, run });
    }
}

#[derive(Clone, Debug)]
enum Step {
    Send,
    Deliver(usize),
    LosePacket(usize),
    Answer(usize),
    LoseAnswer(usize),
    TimeOut,
    Probe,
    AnswerAfterProbe(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Small picks keep the order nearly as it was, large ones mix it.
    let pick = || prop_oneof![4 => 0..2usize, 1 => 0..1_000usize];
    prop_oneof![
        40 => Just(Step::Send),
        30 => pick().prop_map(Step::Deliver),
        6 => pick().prop_map(Step::LosePacket),
        30 => pick().prop_map(Step::Answer),
        6 => pick().prop_map(Step::LoseAnswer),
        1 => Just(Step::TimeOut),
        2 => Just(Step::Probe),
        3 => (0..20u64).prop_map(Step::AnswerAfterProbe),
    ]
}

fn take(board: &mut Scoreboard, model: &mut Model, far: &mut Far, step: Step) {
    match step {
        Step::Send => {
            let choice = board.choose(SPAN);
            assert_eq!(choice, model.choice());
            if let Some(index) = choice {
                model.send(index);
                let transmission = board.on_sent(index, 0);
                assert_eq!(transmission, model.transmissions - 1);
                far.flying.push((transmission, index));
            }
        }
        Step::Deliver(pick) => far.deliver(pick),
        Step::LosePacket(pick) if !far.flying.is_empty() => {
            far.flying.remove(pick % far.flying.len());
        }
        Step::Answer(pick) if !far.answers.is_empty() => {
            let answer = far.answers.remove(pick % far.answers.len());
            let change = board.on_answer(&answer, Extent::default);
            assert_eq!(change, Some(model.answer(&answer)));
        }
        Step::LoseAnswer(pick) if !far.answers.is_empty() => {
            far.answers.remove(pick % far.answers.len());
        }
        Step::Probe => {
            board.on_probe();
            model.probe();
        }
        Step::AnswerAfterProbe(before_last) => {
            let answered = board.next_transmission().saturating_sub(before_last);
            let probe = model.probe.take().filter(|probe| answered >= *probe);
            assert_eq!(board.on_probe_answered(answered), probe.map(|probe| probe - 1));
            model.give_up(|transmission| probe.is_some_and(|probe| transmission < probe));
        }
        Step::TimeOut => {
            board.on_timeout();
            model.time_out();
        }
        _ => {}
    }
}

fn compare(board: &Scoreboard, model: &Model) {
    let in_flight = model.count(|state| matches!(state, State::InFlight { .. }));
    assert_eq!(board.in_flight_packets(), in_flight);
    assert_eq!(board.lost_count, model.count(|&state| state == State::Lost));
    assert_eq!(board.next_transmission(), model.transmissions);
    assert_eq!(board.is_complete(), model.cumulative() == PACKETS);
    assert_eq!(board.has_work(SPAN), model.choice().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn it_agrees_with_looking_at_every_packet(steps in prop::collection::vec(step(), 1..900)) {
        let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByOrder);
        board.reset(PACKETS);
        let mut model = Model::new();
        let mut far = Far::default();
        for step in steps {
            take(&mut board, &mut model, &mut far, step);
            compare(&board, &model);
            board.check();
        }
    }

    #[test]
    fn answers_about_the_future_change_nothing(
        index in 0..40u32, transmission in 0..40u64, cumulative in 0..40u32, sack in any::<u64>()
    ) {
        let mut board = sent(20);
        let answer = Answer { index, transmission, cumulative, sack, run: index };
        let says = cumulative.max(index + 1) as u64;
        let says = if sack == 0 { says } else { says.max(u64::from(cumulative) + 65 - u64::from(sack.leading_zeros())) };
        // Packet i went out as transmission i.
        let honest = says <= 20 && u64::from(index) == transmission;
        prop_assert_eq!(board.on_answer(&answer, Extent::default).is_some(), honest);
        if !honest {
            prop_assert_eq!(board.in_flight_packets(), 20);
        }
    }
}

fn sent(packets: u32) -> Scoreboard {
    let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByOrder);
    board.reset(PACKETS);
    for index in 0..packets {
        assert_eq!(board.choose(SPAN), Some(index));
        board.on_sent(index, 0);
    }
    board
}

fn answer(index: u32, transmission: u64, cumulative: u32) -> Answer {
    Answer { index, transmission, cumulative, sack: 0, run: 0 }
}

#[test]
fn a_lost_resend_is_found_without_a_timer() {
    let mut board = sent(10);
    // Packet 0 is lost, and so is its resend, transmission 10.
    let change = board.on_answer(&answer(3, 3, 0), Extent::default).expect("honest");
    assert_eq!(change, Change { arrived: 1, lost_transmission: Some(0), undone: None });
    assert_eq!(board.choose(SPAN), Some(0));
    assert_eq!(board.on_sent(0, 0), 10);
    for index in 10..13 {
        assert_eq!(board.choose(SPAN), Some(index));
        board.on_sent(index, 0);
    }
    let change = board.on_answer(&answer(12, 13, 0), Extent::default).expect("honest");
    assert_eq!(change.lost_transmission, Some(10));
    // Given up in the order of sending: 1, 2 and 4 to 9 first.
    let resent: Vec<u32> = (0..9)
        .map(|_| {
            let index = board.choose(SPAN).expect("nine are lost");
            board.on_sent(index, 0);
            index
        })
        .collect();
    assert_eq!(resent, [1, 2, 4, 5, 6, 7, 8, 9, 0]);
}

#[test]
fn a_steady_flow_takes_no_more_memory() {
    let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByOrder);
    board.reset(100_000);
    let mut kept = 0;
    for index in 0..100_000 {
        assert_eq!(board.choose(SPAN), Some(index));
        board.on_sent(index, 0);
        if index >= 20 {
            let last = index - 20;
            board.on_answer(&answer(last, last.into(), last + 1), Extent::default).expect("honest");
        }
        if index == 1_000 {
            kept = board.sent.iter().count();
        }
    }
    assert_eq!(board.sent.iter().count(), kept);
    assert!(kept <= 64, "{kept}");
}

/// A receiver's verdict: `arrived` came, everything below `cumulative` is there.
fn verdict(
    board: &mut Scoreboard,
    (arrived, transmission): (u32, u64),
    cumulative: u32,
    resend: bool,
) -> Change {
    let answer = Answer { index: arrived, transmission, cumulative, sack: 0, run: 0 };
    board.on_verdict(&answer, resend).expect("it was sent")
}

// spec: Q-07 machine
#[test]
fn a_receivers_verdict_counts_once_for_each_first_missing_packet() {
    let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByPriority);
    board.reset(20);
    for index in 0..10 {
        assert_eq!(board.choose(100), Some(index));
        board.on_sent(index, 0);
    }
    assert_eq!(verdict(&mut board, (0, 0), 1, false).lost_transmission, None);
    // Out of order, and nothing is lost for all that is known: the scoreboard is all that changes.
    assert_eq!(
        verdict(&mut board, (5, 5), 1, false),
        Change { arrived: 1, lost_transmission: None, undone: None }
    );
    assert_eq!(board.in_flight_packets(), 8);
    assert_eq!(verdict(&mut board, (6, 6), 1, true).lost_transmission, Some(1));
    assert_eq!(board.choose(100), Some(1));
    board.on_sent(1, 0);
    // Others that were in flight say the same.
    for packet in [7, 8] {
        let change = verdict(&mut board, (packet, packet.into()), 1, true);
        assert_eq!(change, Change { arrived: 1, lost_transmission: None, undone: None });
    }
    // The next one that is missing is another matter.
    assert_eq!(verdict(&mut board, (1, 10), 2, true).lost_transmission, Some(2));
    // A verdict that was overtaken speaks of what has arrived since.
    assert_eq!(verdict(&mut board, (9, 9), 1, true).lost_transmission, None);
    assert_eq!(board.retransmissions(), 1);
}

// spec: Q-07 machine
#[test]
fn what_was_sent_again_by_the_timer_is_not_asked_for_by_older_answers() {
    let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByPriority);
    board.reset(9);
    for index in 0..6 {
        board.choose(100);
        board.on_sent(index, 0);
    }
    verdict(&mut board, (0, 0), 1, false);
    board.on_timeout();
    assert_eq!(board.choose(100), Some(1));
    assert_eq!(board.on_sent(1, 0), 6);
    // Packet 4 left before the timeout.
    assert_eq!(verdict(&mut board, (4, 4), 1, true).lost_transmission, None);
    // Packet 2 left after packet 1 was sent again: now it is lost for sure.
    assert_eq!(board.choose(100), Some(2));
    assert_eq!(board.on_sent(2, 0), 7);
    assert_eq!(verdict(&mut board, (2, 7), 1, true).lost_transmission, Some(6));
}

/// A message of eight packets, all of which were given up.
fn all_lost() -> Scoreboard {
    let mut board = Scoreboard::new(REORDERING as u32, LossDetection::ByOrder);
    board.reset(8);
    (0..8).for_each(|index| assert_eq!(board.on_sent(index, 0), index.into()));
    board.on_timeout();
    board.check();
    board
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "lost packets are counted once each")]
fn a_loss_that_is_not_counted_is_noticed() {
    let mut board = all_lost();
    board.lost_count -= 1;
    board.check();
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "packet 0 is lost and will not be sent again")]
fn a_lost_packet_that_is_forgotten_is_noticed() {
    let mut board = all_lost();
    board.resend.pop_front();
    board.check();
}

// spec: T-12 machine
#[test]
#[should_panic(expected = "packet 3 is sent again and was not lost")]
fn a_resend_of_what_was_not_lost_is_noticed_at_once() {
    let mut board = all_lost();
    board.lost.remove(3);
    board.on_sent(3, 0);
}

// spec: F-06 machine
#[test]
fn a_run_far_behind_the_first_gap_has_arrived() {
    let mut board = sent(100);
    // Packet 3 is lost. Bits reach to packet 67; the answer is to packets 80 to 90.
    let answer = Answer { run: 10, ..answer(90, 90, 3) };
    let change =
        board.on_answer(&answer, Extent::default).expect("it is about packets that were sent");
    assert_eq!(change.arrived, 3 + 11);
    let lost: Vec<u32> = std::iter::from_fn(|| {
        let index = board.choose(SPAN).filter(|&index| index < 100)?;
        board.on_sent(index, 0);
        Some(index)
    })
    .collect();
    let expected: Vec<u32> = (3..80).collect();
    assert_eq!(lost, expected, "those before the run, at least {REORDERING} before the last");
    board.check();
}
