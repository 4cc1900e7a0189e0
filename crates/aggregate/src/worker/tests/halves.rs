//! Tensors of 16-bit values.

use thalweg_core::Element;
use thalweg_values::Half;

use super::*;

/// A tensor of this number of small integers.
fn tensor(element: Element, values: u16) -> Tensor {
    let bits = |half: Half| -> Vec<u16> {
        let wide: Vec<u8> = (0..values).flat_map(|value| f32::from(value).to_le_bytes()).collect();
        let mut body = vec![0; 2 * usize::from(values)];
        half.round(&wide, &mut body);
        body.as_chunks().0.iter().map(|bits| u16::from_le_bytes(*bits)).collect()
    };
    let mut tensor = match element {
        Element::F16 => Tensor::F16(vec![Default::default(); values.into()].into()),
        _ => Tensor::Bf16(vec![Default::default(); values.into()].into()),
    };
    let half = Half::of(element).unwrap();
    let body: Vec<u8> = bits(half).iter().flat_map(|bits| bits.to_le_bytes()).collect();
    tensor.slice_mut(0..values.into()).read_le(&body);
    tensor
}

fn bytes(owned: &Owned) -> Vec<u8> {
    let thalweg_core::testing::OwnedBody::Bytes(bytes) = &owned.body else { panic!("a length") };
    bytes.clone()
}

fn answer(bench: &mut Bench, sequence: u64, numbers: Numbers, mut body: Vec<u8>) {
    let header = Parameter { numbers, ..bench.parameter(sequence) }.to_header();
    bench.deliver(header, Body::Bytes(&mut body), Ecn::Capable);
}

// spec: F-02 machine
#[test]
fn fragments_of_halves_have_twice_as_many_values() {
    for (element, numbers) in [(Element::F16, Numbers::F16), (Element::Bf16, Numbers::Bf16)] {
        let mut bench = Bench::new(setup());
        let operation = bench.worker.submit(bench.now, tensor(element, 19));
        let after = bench.submit(&[1.0; 5]);
        let sent = bench.sent();
        let lengths: Vec<usize> = sent.iter().map(|sent| bytes(sent).len()).collect();
        assert_eq!(lengths, [16, 16, 6, 16, 4], "eight values of 16 bits, or four of 32");
        assert_eq!(sent[2].gradient().numbers, numbers);
        assert_eq!(sent[3].gradient().numbers, Numbers::Float);
        assert_eq!(sent[0].meta.wire_bytes, 116);
        // The sum of one worker is its own values: they come back with the same bits.
        for sent in &sent[..3] {
            answer(&mut bench, sent.sequence(), numbers, bytes(sent));
        }
        assert_eq!(bench.finished(), [(operation.0, 0)]);
        assert_eq!(bench.worker.tensor(operation), Some(&tensor(element, 19)));
        assert_eq!(bench.worker.tensor(after), None);
    }
}

// spec: F-02 machine
#[test]
fn sums_of_other_numbers_are_ignored() {
    let mut bench = Bench::new(setup());
    bench.worker.submit(bench.now, tensor(Element::Bf16, 8));
    bench.submit(&[1.0; 4]);
    let fixed = Numbers::Fixed(Scale::new(1.0).unwrap());
    for numbers in [Numbers::Float, Numbers::F16, fixed] {
        answer(&mut bench, 0, numbers, vec![0; 16]);
    }
    answer(&mut bench, 1, Numbers::Bf16, vec![0; 16]);
    assert_eq!((bench.finished(), bench.worker.stats().ignored), (vec![], 4));
}

// spec: F-02 machine
#[test]
fn halves_can_travel_wide() {
    let wide = setup().with(|parameters| parameters.widens_halves = true);
    let fixed_point = setup().with(|parameters| parameters.numeric = fixed(1.0, false));
    for setup in [wide, fixed_point] {
        let numbers = setup.parameters.numeric.numbers();
        let mut bench = Bench::new(setup);
        let operation = bench.worker.submit(bench.now, tensor(Element::Bf16, 5));
        let sent = bench.sent();
        let lengths: Vec<usize> = sent.iter().map(|sent| bytes(sent).len()).collect();
        assert_eq!((lengths, sent[0].gradient().numbers), (vec![16, 4], numbers));
        for sent in &sent {
            answer(&mut bench, sent.sequence(), numbers, bytes(sent));
        }
        assert_eq!(bench.worker.tensor(operation), Some(&tensor(Element::Bf16, 5)));
    }
}

// spec: F-02, A-41 machine
#[test]
fn results_are_supplied_as_halves() {
    let mut bench = Bench::new(setup());
    bench.worker.submit(bench.now, tensor(Element::F16, 8));
    let own = bytes(&bench.sent()[0]);
    answer(&mut bench, 0, Numbers::F16, own.clone());
    bench.ask(Request { bypass: true, ..bench.request(0) });
    let sent = bench.sent();
    let result = sent[0].gradient();
    assert_eq!((result.result, result.numbers, bytes(&sent[0])), (true, Numbers::F16, own));
}

// spec: F-02 machine
#[test]
fn a_later_set_up_cannot_change_how_halves_travel() {
    let mut bench = Bench::new(setup());
    let other = setup().with(|parameters| parameters.widens_halves = true);
    let other = Arc::new(Setup { epoch: 2, ..other });
    assert!(!bench.worker.adopt(bench.now, other, 1));
}
