use super::*;

/// A tensor of six fragments, of which 0, 1 and 3 are complete.
fn bench() -> Bench {
    let mut bench = Bench::with_sent(setup(), Config::default(), 6);
    bench.answer([0, 1, 3]);
    bench
}

fn adopt(bench: &mut Bench, setup: Setup) -> bool {
    bench.setup = Arc::new(setup);
    bench.worker.adopt(bench.now, bench.setup.clone(), 1)
}

// spec: A-41 machine
#[test]
fn a_new_epoch_sends_again_what_is_not_complete() {
    let mut bench = bench();
    let old = bench.parameter(2);
    assert!(adopt(&mut bench, Setup { epoch: 2, resume_from: 1, ..setup() }));
    let sent = bench.sent();
    assert_eq!(sent.iter().map(Owned::sequence).collect::<Vec<_>>(), [2, 4, 5]);
    assert!(sent.iter().all(|packet| packet.gradient().identity.epoch == 2));
    assert!(sent.iter().all(|packet| !packet.gradient().resend));
    assert!(
        sent.iter().all(|packet| packet.purpose == Purpose::Retransmission),
        "the same values left in the last epoch"
    );
    bench.answer_with(old);
    assert_eq!(bench.worker.watermark(), 2, "of the old epoch");
    bench.answer([5, 2, 4]);
    assert_eq!((bench.worker.watermark(), bench.finished()), (6, vec![(0, 0)]));
    bench.submit_length(4);
    assert!(
        bench.sent().iter().all(|packet| packet.purpose == Purpose::Data),
        "values that never left"
    );
}

// spec: A-41 machine
#[test]
fn a_result_may_come_before_the_fragment_was_sent() {
    let config = Config { control: Fixed { bytes: 0 }.into(), ..Config::default() };
    let mut bench = Bench::with_sent(setup(), config, 6);
    assert!(adopt(&mut bench, Setup { epoch: 2, ..setup() }));
    assert_eq!(bench.sent_sequences(), [0, 1]);
    bench.answer([3]);
    assert_eq!(bench.sent_sequences(), []);
    bench.answer([0, 1]);
    assert_eq!(bench.sent_sequences(), [2, 4]);
}

// spec: A-41 machine
#[test]
fn who_lost_its_memory_begins_where_the_others_are() {
    let worker = Worker::resuming(Config::default(), Operation(7), 40).unwrap();
    let worker = Checked::new(worker);
    let mut bench = Bench { worker, setup: Arc::new(setup()), now: Time::ZERO };
    assert_eq!(bench.worker.submit(bench.now, Tensor::from(vec![1.0; 4 * 4])), Operation(7));
    assert_eq!(bench.worker.watermark(), 40);
    assert!(adopt(&mut bench, Setup { epoch: 3, resume_from: 42, ..setup() }));
    assert_eq!(bench.worker.watermark(), 42);
    assert_eq!(bench.sent_sequences(), [42, 43]);
    bench.ask(bench.request(41));
    assert_eq!(bench.sent().len(), 0, "it has no result to supply");
    bench.answer_values(43, &[2.0; 4]);
    bench.answer_values(42, &[2.0; 4]);
    assert_eq!(bench.finished(), [(7, 2)]);
    let result = bench.worker.tensor(Operation(7)).unwrap().values().unwrap();
    assert_eq!(result[8..], [2.0; 8]);
}

// spec: A-41 machine
#[test]
fn operations_that_all_other_ranks_have_finish_when_they_are_submitted() {
    let worker = Worker::resuming(Config::default(), Operation(2), 10).unwrap();
    let worker = Checked::new(worker);
    let mut bench = Bench { worker, setup: Arc::new(setup()), now: Time::ZERO };
    assert!(adopt(&mut bench, Setup { resume_from: 13, ..setup() }));
    assert_eq!(bench.submit_length(4 * 2), Operation(2));
    assert_eq!((bench.finished(), bench.worker.watermark()), (vec![(2, 2)], 12));
    bench.submit_length(4 * 2);
    assert_eq!(bench.worker.watermark(), 13);
    assert_eq!(bench.sent_sequences(), [13]);
}

#[test]
fn set_ups_that_do_not_follow_are_refused() {
    let mut bench = bench();
    let next = Setup { epoch: 2, ..setup() };
    let refused = [
        Setup { epoch: 1, ..next.clone() },
        Setup { job: JobId(8), ..next.clone() },
        next.clone().with(|parameters| parameters.fragment_values = 5),
        Setup { trees: vec![], ..next.clone() },
    ];
    for setup in refused {
        assert!(!bench.worker.adopt(bench.now, Arc::new(setup.clone()), 1), "{setup:?}");
    }
    assert!(!bench.worker.adopt(bench.now, Arc::new(next.clone()), 2), "there are two workers");
    bench.answer([2, 4, 5]);
    assert_eq!(bench.worker.watermark(), 6, "the old set-up holds");
    assert!(bench.worker.adopt(bench.now, Arc::new(next), 0));
}
