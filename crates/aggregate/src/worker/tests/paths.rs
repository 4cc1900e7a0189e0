//! Several paths to the first switch.

use thalweg_transport::PathSettings;

use super::*;

/// A worker that sends over four paths, in batches of this many packets. Losses show by time alone.
fn bench(batch_packets: u32) -> Bench {
    let control = Fixed { bytes: 1 << 20 }.into();
    let paths = PathSettings { count: 4, batch_packets, leaves_lossy: true };
    Bench::with(setup(), Config { control, paths, loss_threshold: 0, ..Config::default() })
}

/// Number of fragments that took each path first, of this many, where requests ask for those that took a lossy one.
fn spread(bench: &mut Bench, fragments: u64, is_lossy: impl Fn(u8) -> bool) -> [u32; 4] {
    let mut spread = [0; 4];
    let mut sent_again = 0;
    bench.submit_length(4 * fragments);
    let mut sent = VecDeque::from(bench.sent());
    while let Some(packet) = sent.pop_front() {
        let (path, sequence) = (path_number(packet.meta.entropy), packet.sequence());
        if packet.gradient().repair {
            sent_again += 1;
            bench.answer([sequence]);
        } else {
            spread[usize::from(path)] += 1;
            if is_lossy(path) {
                bench.ask(bench.request(sequence));
            } else {
                bench.answer([sequence]);
            }
        }
        sent.extend(bench.sent());
    }
    let lost: u32 =
        (0..4).filter(|path| is_lossy(*path)).map(|path| spread[usize::from(path)]).sum();
    assert_eq!((spread.iter().sum::<u32>(), sent_again), (fragments as u32, lost));
    spread
}

// spec: M-21 machine
#[test]
fn a_batch_of_fragments_has_one_path() {
    let mut bench = bench(4);
    bench.submit_length(4 * 8);
    let paths: Vec<u16> = bench.sent().iter().map(|packet| packet.meta.entropy).collect();
    assert!(paths.chunks(4).all(|batch| batch.iter().all(|path| *path == batch[0])));
    assert_ne!(paths[0], paths[4]);
}

// spec: M-21 machine
#[test]
fn with_one_path_all_packets_of_a_job_take_the_same() {
    let mut bench = Bench::with_sent(setup(), Config::default(), 4);
    bench.ask(bench.request(2));
    let sent = bench.sent();
    assert!(sent.iter().all(|packet| u64::from(packet.meta.entropy) == JOB.0), "{sent:?}");
}

// spec: M-21 machine
#[test]
fn a_path_is_left_whose_packets_the_switch_asks_for() {
    let mut bench = bench(1);
    assert_eq!(spread(&mut bench, 800, |_| false), [200; 4]);
    assert_eq!(bench.worker.stats().left_paths, 0);
    spread(&mut bench, 800, |path| path == 2);
    assert_eq!(bench.worker.stats().left_paths, 1);
    let spread = spread(&mut bench, 800, |path| path == 2);
    assert!(spread[2] < 40, "{spread:?}");
}

/// Losses of other workers make sums late on all paths alike.
// spec: M-21 machine
#[test]
fn paths_that_are_asked_about_alike_are_used() {
    let mut bench = bench(1);
    spread(&mut bench, 1_600, |_| true);
    assert_eq!(bench.worker.stats().left_paths, 0);
}

/// Packets of another path may be a batch behind.
// spec: A-33, M-21 machine
#[test]
fn fragments_are_overtaken_by_a_batch_more() {
    let mut setup = setup();
    setup.parameters = JobParameters { span_fragments: 32, ..*setup.parameters }.check().unwrap();
    let paths = PathSettings { count: 4, batch_packets: 4, leaves_lossy: true };
    let control = Fixed { bytes: 1 << 20 }.into();
    let mut bench = Bench::with_sent(setup, Config { control, paths, ..Config::default() }, 32);
    bench.answer(1..7);
    assert_eq!(bench.sent(), []);
    bench.answer([7]);
    assert_eq!(bench.sent_sequences(), [0]);
}
