//! Sequence models, for sequences of 128 tokens.

use crate::model::Model;
use crate::models::builder::Builder;

const TOKENS: u64 = 128;

/// The base Transformer: six encoder and six decoder layers of width 512, with one table of 37,000
/// entries for both inputs and the output.
pub(super) fn transformer_base(name: &'static str) -> Model {
    const WIDTH: u64 = 512;
    const ENTRIES: u64 = 37_000;
    let mut net = Builder::new(name);
    net.tied_head("out_bias", (WIDTH, ENTRIES), TOKENS);
    net.embedding("embedding", ENTRIES, WIDTH);
    for index in 0..6 {
        let layer = format!("transformer.encoder.layers.{index}");
        attention(&mut net, &format!("{layer}.self_attn"), WIDTH);
        feed_forward(&mut net, &layer, WIDTH, 2);
        net.reorder_last([0, 1, 4, 2, 3, 5]);
    }
    net.norm("transformer.encoder.norm", WIDTH, 0);
    for index in 0..6 {
        let layer = format!("transformer.decoder.layers.{index}");
        attention(&mut net, &format!("{layer}.self_attn"), WIDTH);
        attention(&mut net, &format!("{layer}.multihead_attn"), WIDTH);
        feed_forward(&mut net, &layer, WIDTH, 3);
        net.reorder_last([0, 1, 6, 2, 3, 7, 4, 5, 8]);
    }
    net.norm("transformer.decoder.norm", WIDTH, 0);
    net.first_is_last();
    net.finish()
}

/// The smallest GPT-2: twelve layers of width 768, with one table for input and output.
pub(super) fn gpt2_small(name: &'static str) -> Model {
    const WIDTH: u64 = 768;
    const ENTRIES: u64 = 50_257;
    let mut net = Builder::new(name);
    net.embedding("transformer.wte", ENTRIES, WIDTH);
    net.embedding("transformer.wpe", 1_024, WIDTH);
    for index in 0..12 {
        let layer = format!("transformer.h.{index}");
        let inner = inner_products(WIDTH);
        net.norm(&format!("{layer}.ln_1"), WIDTH, 0);
        net.linear(&format!("{layer}.attn.c_attn"), (WIDTH, 3 * WIDTH), TOKENS, inner);
        net.linear(&format!("{layer}.attn.c_proj"), (WIDTH, WIDTH), TOKENS, 0);
        net.norm(&format!("{layer}.ln_2"), WIDTH, 0);
        net.linear(&format!("{layer}.mlp.c_fc"), (WIDTH, 4 * WIDTH), TOKENS, 0);
        net.linear(&format!("{layer}.mlp.c_proj"), (4 * WIDTH, WIDTH), TOKENS, 0);
    }
    // The head has no tensor of its own.
    net.norm("transformer.ln_f", WIDTH, 2 * TOKENS * WIDTH * ENTRIES);
    net.finish()
}

/// Projections in, inner products, projection out: two layers.
fn attention(net: &mut Builder, name: &str, width: u64) {
    net.packed(name, (width, 3 * width), TOKENS, inner_products(width));
    net.linear(&format!("{name}.out_proj"), (width, width), TOKENS, 0);
}

/// Widens to four times the width and back, then the normalisations, which the framework lists last.
fn feed_forward(net: &mut Builder, name: &str, width: u64, norms: u64) {
    net.linear(&format!("{name}.linear1"), (width, 4 * width), TOKENS, 0);
    net.linear(&format!("{name}.linear2"), (4 * width, width), TOKENS, 0);
    for index in 1..=norms {
        net.norm(&format!("{name}.norm{index}"), width, 0);
    }
}

/// Every token with every token, once for the scores and once for the values.
fn inner_products(width: u64) -> u64 {
    2 * 2 * TOKENS * TOKENS * width
}
