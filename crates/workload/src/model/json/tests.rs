use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// An embedding that the head uses again, attention without tensors of its own, and a norm.
fn table() -> Value {
    json!({
        "model": "toy", "framework": "any", "num_params": 62, "total_fwd_flops": 1_000,
        "parameters": [
            {"name": "embed.weight", "shape": [10, 4], "numel": 40, "grad_ready_rank": 4, "tied_to": ["head.weight"]},
            {"name": "attn.query.weight", "shape": [4, 4], "numel": 16, "grad_ready_rank": 3},
            {"name": "attn.query.bias", "shape": [4], "numel": 4, "grad_ready_rank": 2},
            {"name": "scale", "shape": [], "numel": 1, "grad_ready_rank": 1},
            {"name": "shift", "shape": [1, 1], "numel": 1, "grad_ready_rank": 0},
        ],
        "layers": [
            {"module": "embed", "fwd_flops": 0},
            {"module": "attn", "fwd_flops": 100, "type": "Attention"},
            {"module": "attn.query", "fwd_flops": 200},
            {"module": "", "fwd_flops": 300},
            {"module": "head", "fwd_flops": 400},
        ]
    })
}

fn read(table: &Value) -> Result<Model, ModelError> {
    parse(&table.to_string())
}

fn complaint(change: impl FnOnce(&mut Value)) -> String {
    let mut table = table();
    change(&mut table);
    read(&table).expect_err("a broken table").to_string()
}

fn layer(name: &str, forward_flops: u64, backward_flops: u64) -> Layer {
    Layer { name: name.to_string(), forward_flops, backward_flops }
}

#[test]
fn a_table_becomes_layers_in_forward_order() {
    let model = read(&table()).unwrap();
    assert_eq!(model.name(), "toy");
    assert_eq!(model.ready_order(), [4, 3, 2, 1, 0]);
    assert_eq!(model.values(), 62);
    // Attention's own work counts for the part that has tensors, the tied head's for the layer
    // listed before it.
    let expected = [layer("embed", 0, 0), layer("attn.query", 300, 600), layer("", 700, 1_400)];
    assert_eq!(model.layers(), expected);
    let places: Vec<usize> = model.tensors().iter().map(|tensor| tensor.layer).collect();
    assert_eq!(places, [0, 1, 1, 2, 2]);
}

#[test]
fn the_first_layer_needs_no_gradient_of_the_data() {
    let mut table = table();
    table["layers"][0]["fwd_flops"] = 50.into();
    table["total_fwd_flops"] = 1_050.into();
    let model = read(&table).unwrap();
    assert_eq!(model.layers()[0], layer("embed", 50, 50));
    assert_eq!(model.backward_flops(), 2_050);
}

#[test]
fn a_stated_backward_total_is_kept_exactly() {
    let mut table = table();
    table["total_bwd_flops"] = 3_001.into();
    let model = read(&table).unwrap();
    assert_eq!(model.backward_flops(), 3_001);
    assert_eq!(model.layers()[1].backward_flops, 900);
    table["total_bwd_flops"] = Value::Null;
    assert_eq!(read(&table).unwrap().backward_flops(), 2_000);
}

#[test]
fn layers_are_optional() {
    let mut table = table();
    let document = table.as_object_mut().unwrap();
    document.remove("layers");
    document.remove("total_fwd_flops");
    assert_eq!(read(&table).unwrap().forward_flops(), 0);
}

#[test]
fn complaints_name_the_tensor_and_the_change() {
    assert_eq!(
        complaint(|table| table["parameters"][0]["numel"] = 41.into()),
        "tensor embed.weight: numel is 41 and the shape [10, 4]: make them agree on at least 1"
    );
    assert_eq!(
        complaint(|table| table["parameters"][2]["grad_ready_rank"] = 3.into()),
        "tensor attn.query.bias: grad_ready_rank 3 is taken or above 4: give every tensor its own, from 0 to 4"
    );
    assert_eq!(
        complaint(|table| table["parameters"][2]["grad_ready_rank"] = 5.into()),
        "tensor attn.query.bias: grad_ready_rank 5 is taken or above 4: give every tensor its own, from 0 to 4"
    );
    assert_eq!(
        complaint(|table| table["parameters"][3]["name"] = "head.weight".into()),
        "tensor head.weight is listed twice: list tensors that share their values once"
    );
    assert_eq!(
        complaint(|table| table["num_params"] = 63.into()),
        "num_params is 63, but what is listed makes 62: correct it or leave it out"
    );
    assert_eq!(
        complaint(|table| table["total_fwd_flops"] = 999.into()),
        "total_fwd_flops is 999, but what is listed makes 1000: correct it or leave it out"
    );
    assert_eq!(
        complaint(|table| table["parameters"] = json!([])),
        "model toy has no parameters: list at least one"
    );
    assert_eq!(
        complaint(|table| table["layers"][0]["fwd_flops"] = u64::MAX.into()),
        "fwd_flops adds up to more than 1152921504606846976: check the numbers"
    );
    let missing = complaint(|table| _ = table.as_object_mut().unwrap().remove("parameters"));
    assert!(
        missing.starts_with("the model is not readable: missing field `parameters`"),
        "{missing}"
    );
}

#[test]
fn shapes_that_overflow_are_refused() {
    let huge = complaint(|table| table["parameters"][0]["shape"] = json!([u64::MAX, 3]));
    assert!(huge.starts_with("tensor embed.weight: numel is 40"), "{huge}");
    let empty = complaint(|table| {
        table["parameters"][0]["shape"] = json!([0, 4]);
        table["parameters"][0]["numel"] = 0.into();
    });
    assert!(empty.starts_with("tensor embed.weight: numel is 0"), "{empty}");
}

proptest! {
    #[test]
    fn backward_totals_are_met_whatever_they_are(
        stated in 0..MOST_FLOPS, work in prop::collection::vec(0..1u64 << 50, 1..20),
    ) {
        let place = |(index, flops)| Layer::new(String::new(), flops, index == 0);
        let mut layers: Vec<Layer> = work.into_iter().enumerate().map(place).collect();
        prop_assume!(layers.iter().any(|layer| layer.forward_flops > 0));
        fit_backward(&mut layers, stated).unwrap();
        prop_assert_eq!(layers.iter().map(|layer| layer.backward_flops).sum::<u64>(), stated);
    }

    #[test]
    fn shuffled_ranks_are_inverted(seed: u64) {
        let mut ranks: Vec<usize> = (0..5).collect();
        thalweg_core::Rng::new(seed).shuffle(&mut ranks);
        let mut table = table();
        for (index, &rank) in ranks.iter().enumerate() {
            table["parameters"][index]["grad_ready_rank"] = rank.into();
        }
        let model = read(&table).unwrap();
        for (rank, &index) in model.ready_order().iter().enumerate() {
            prop_assert_eq!(ranks[index], rank);
        }
        let last = model.tensors()[model.ready_order()[0]].layer;
        prop_assert_eq!(last, model.layers().len() - 1, "the layer that is ready first is the last");
    }
}
