use proptest::prelude::*;

use super::*;
use crate::models;

/// Three layers: a front one of 10 values and work 100, a middle one of 30 and 200 with a bias of 5,
/// a last one of 20 and 100.
fn toy() -> Model {
    let text = r#"{
        "model": "toy",
        "parameters": [
            {"name": "front.weight", "shape": [10], "numel": 10, "grad_ready_rank": 3},
            {"name": "middle.weight", "shape": [5, 6], "numel": 30, "grad_ready_rank": 2},
            {"name": "middle.bias", "shape": [5], "numel": 5, "grad_ready_rank": 1},
            {"name": "last.weight", "shape": [20], "numel": 20, "grad_ready_rank": 0}
        ],
        "layers": [
            {"module": "front", "fwd_flops": 100},
            {"module": "middle", "fwd_flops": 200},
            {"module": "last", "fwd_flops": 100}
        ]
    }"#;
    Model::from_json(text).unwrap()
}

fn job(model: Model, compute: Compute) -> TrainingJob {
    TrainingJob {
        model,
        workers: vec![0, 1],
        iterations: 1,
        compute,
        bytes_per_value: 4,
        buckets: None,
    }
}

fn timed() -> TrainingJob {
    let times = Compute::Times { forward: Span::from_ps(400), backward: Span::from_ps(1_400) };
    job(toy(), times)
}

#[test]
fn passes_are_split_by_work() {
    let plan = timed().plan().unwrap();
    let ready = |tensor, bytes, at, layer| Ready {
        tensors: vec![tensor],
        bytes: Bytes::new(bytes),
        at: Span::from_ps(at),
        layer,
    };
    // Backward work is 200, 400 and, for the front layer, 100 of 700.
    assert_eq!(
        plan.gradients,
        [
            ready(3, 80, 400 + 400, 2),
            ready(2, 20, 400 + 1_200, 1),
            ready(1, 120, 400 + 1_200, 1),
            ready(0, 40, 400 + 1_400, 0),
        ]
    );
}

#[test]
fn the_forward_pass_is_split_by_work() {
    let plan = timed().plan().unwrap();
    assert_eq!(plan.layers, [100, 200, 100].map(Span::from_ps));
    let text = r#"{
        "model": "bare",
        "parameters": [
            {"name": "a.w", "shape": [30], "numel": 30, "grad_ready_rank": 1},
            {"name": "b.w", "shape": [10], "numel": 10, "grad_ready_rank": 0}
        ]
    }"#;
    let bare = TrainingJob { model: Model::from_json(text).unwrap(), ..timed() }.plan().unwrap();
    assert_eq!(bare.layers, [300, 100].map(Span::from_ps), "by size where no work is known");
}

#[test]
fn buckets_close_when_they_are_full() {
    let buckets = |first, others| Buckets { first: Bytes::new(first), others: Bytes::new(others) };
    let contents = |buckets| {
        let plan = TrainingJob { buckets: Some(buckets), ..timed() }.plan().unwrap();
        let content =
            |ready: Ready| (ready.tensors, ready.bytes.as_u64(), ready.at.as_ps(), ready.layer);
        plan.gradients.into_iter().map(content).collect::<Vec<_>>()
    };
    assert_eq!(
        contents(buckets(80, 1_000)),
        [(vec![3], 80, 800, 2), (vec![2, 1, 0], 180, 1_800, 0)]
    );
    assert_eq!(
        contents(buckets(81, 100)),
        [(vec![3, 2], 100, 1_600, 1), (vec![1], 120, 1_600, 1), (vec![0], 40, 1_800, 0)]
    );
    assert_eq!(contents(buckets(0, 0)).len(), 4);
    assert_eq!(contents(buckets(1_000, 0)).len(), 1);
}

#[test]
fn default_buckets_are_those_of_pytorch() {
    let sizes = |model| {
        let times = Compute::Times { forward: Span::from_ms(1), backward: Span::from_ms(2) };
        let job = TrainingJob { buckets: Some(Buckets::default()), ..job(model, times) };
        let gradients = job.plan().unwrap().gradients;
        gradients.iter().map(|ready| ready.bytes.as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(
        sizes(models::by_name("resnet50").expect("a built-in model")),
        [8_196_000, 31_502_336, 26_255_360, 26_550_272, 9_724_160]
    );
    assert_eq!(
        sizes(models::by_name("vgg16").expect("a built-in model")),
        [16_388_000, 67_125_248, 411_058_176, 28_315_648, 28_320_768, 2_222_336]
    );
}

#[test]
fn an_accelerator_takes_work_over_speed() {
    let compute = Compute::Accelerator { flops_per_s: 1e13, batch: 32 };
    let plan = job(models::by_name("resnet50").expect("a built-in model"), compute).plan().unwrap();
    // 32 · 8,178,368,512 / 10¹³ s and 32 · 16,120,709,120 / 10¹³ s.
    assert_eq!(plan.forward.as_ps(), 26_170_779_238);
    assert_eq!(plan.backward.as_ps(), 51_586_269_184);
    assert_eq!(plan.gradients.last().unwrap().at, plan.forward + plan.backward);
}

#[test]
fn a_model_without_work_is_split_by_size() {
    let text = r#"{
        "model": "bare",
        "parameters": [
            {"name": "a.w", "shape": [30], "numel": 30, "grad_ready_rank": 1},
            {"name": "b.w", "shape": [10], "numel": 10, "grad_ready_rank": 0}
        ]
    }"#;
    let bare = Model::from_json(text).unwrap();
    let plan = TrainingJob { model: bare.clone(), ..timed() }.plan().unwrap();
    let at: Vec<u64> = plan.gradients.iter().map(|ready| ready.at.as_ps()).collect();
    assert_eq!(at, [400 + 350, 400 + 1_400]);
    let compute = Compute::Accelerator { flops_per_s: 1e12, batch: 1 };
    assert_eq!(job(bare, compute).plan(), Err(TrainingError::NoWork("bare".to_string())));
}

#[test]
fn nonsense_is_refused() {
    let refused = |job: TrainingJob| job.plan().expect_err("nonsense");
    assert_eq!(refused(TrainingJob { workers: vec![], ..timed() }), TrainingError::NoWorkers);
    let twice = vec![4, 2, 4];
    assert_eq!(refused(TrainingJob { workers: twice, ..timed() }), TrainingError::WorkerTwice(4));
    assert_eq!(refused(TrainingJob { iterations: 0, ..timed() }), TrainingError::NoIterations);
    assert_eq!(refused(TrainingJob { bytes_per_value: 0, ..timed() }), TrainingError::NoBytes);
    for flops_per_s in [0.0, -1.0, f64::INFINITY] {
        let compute = Compute::Accelerator { flops_per_s, batch: 1 };
        assert_eq!(refused(job(toy(), compute)), TrainingError::Speed(flops_per_s));
    }
    let idle = Compute::Accelerator { flops_per_s: 1.0, batch: 0 };
    assert_eq!(refused(job(toy(), idle)), TrainingError::NoBatch);
}

proptest! {
    #[test]
    fn every_tensor_is_sent_once_and_in_time(
        model in 0..models::NAMES.len(),
        forward_us in 0..10_000u64,
        backward_us in 0..10_000u64,
        first in 0..4_000_000u64,
        others in 0..40_000_000u64,
        bucketed: bool,
    ) {
        let model = models::by_name(models::NAMES[model]).unwrap();
        let (forward, backward) = (Span::from_us(forward_us), Span::from_us(backward_us));
        let mut job = job(model, Compute::Times { forward, backward });
        job.buckets = bucketed.then_some(Buckets { first: Bytes::new(first), others: Bytes::new(others) });
        let plan = job.plan().unwrap();
        let sent: Vec<usize> = plan.gradients.iter().flat_map(|ready| ready.tensors.clone()).collect();
        prop_assert_eq!(&sent[..], job.model.ready_order());
        let bytes: Bytes = plan.gradients.iter().map(|ready| ready.bytes).sum();
        prop_assert_eq!(bytes.as_u64(), 4 * job.model.values());
        prop_assert!(plan.gradients.is_sorted_by_key(|ready| ready.at));
        prop_assert_eq!(plan.gradients.last().unwrap().at, forward + backward);
        prop_assert!(plan.gradients.iter().all(|ready| ready.at >= forward));
    }
}
