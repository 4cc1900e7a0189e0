use super::Config;
use super::window::Window;

/// An event at a window.
#[derive(Clone, Copy, Debug)]
enum Input {
    Answer(u32),
    Timeout,
}

use Input::{Answer, Timeout};

/// The windows after each input, and whether each timeout asks for probes.
fn follow(inputs: &[Input]) -> (Vec<u32>, Vec<bool>) {
    let config = Config::default();
    let mut window = Window::new(&config);
    let (mut windows, mut probes) = (vec![window.packets], Vec::new());
    for input in inputs {
        match *input {
            Answer(arrived) => window.on_answer(&config, arrived),
            Timeout => probes.push(window.on_timeout(&config)),
        }
        windows.push(window.packets);
    }
    (windows, probes)
}

#[test]
fn windows_go_as_published() {
    let table: [(&[Input], &[u32]); 6] = [
        // A whole product at once, and one packet more for every window that arrived.
        (&[Answer(11), Answer(1)], &[12, 12, 13]),
        // Never more than fifteen.
        (&[Answer(12), Answer(13), Answer(14), Answer(100)], &[12, 13, 14, 15, 15]),
        // Back to one, and to half of what was by slow start.
        (&[Timeout, Answer(1), Answer(2), Answer(2), Answer(1)], &[12, 1, 2, 4, 6, 6]),
        (&[Timeout, Answer(5), Answer(6)], &[12, 1, 6, 7]),
        // Twice in a row leaves nothing to double up to.
        (&[Timeout, Timeout, Answer(1), Answer(2)], &[12, 1, 1, 2, 3]),
        // An answer that nothing arrived with changes nothing.
        (&[Answer(0)], &[12, 12]),
    ];
    for (inputs, expected) in table {
        assert_eq!(follow(inputs).0, expected, "{inputs:?}");
    }
}

#[test]
fn probes_come_with_the_fifth_timeout_in_a_row() {
    let (_, probes) = follow(&[Timeout; 6]);
    assert_eq!(probes, [false, false, false, false, true, true]);
    let (_, probes) = follow(&[Timeout, Timeout, Timeout, Timeout, Answer(0), Timeout]);
    assert_eq!(probes, [false; 5]);
}
