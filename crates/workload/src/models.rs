//! Networks that are often trained, built from their architecture.
//!
//! Tensors, their names and order, the order of gradients and the work are those of the reference
//! implementations (torchvision; the Transformer of the original paper; GPT-2). Images are 3 × 224 ×
//! 224 with 1,000 classes, sequences have 128 tokens. Work counts convolutions, matrix products and
//! attention.

mod builder;
mod language;
mod vision;

use crate::model::Model;

/// Builds a network under a name.
type Build = fn(&'static str) -> Model;

/// Every built-in network: its name, and what builds it.
const BUILT_IN: [(&str, Build); 9] = [
    ("alexnet", vision::alexnet),
    ("vgg16", |name| vision::vgg(name, [2, 2, 3, 3, 3])),
    ("vgg19", |name| vision::vgg(name, [2, 2, 4, 4, 4])),
    ("resnet50", |name| vision::resnet(name, [3, 4, 6, 3])),
    ("resnet101", |name| vision::resnet(name, [3, 4, 23, 3])),
    ("resnet152", |name| vision::resnet(name, [3, 8, 36, 3])),
    ("googlenet", vision::googlenet),
    ("transformer_base", language::transformer_base),
    ("gpt2_small", language::gpt2_small),
];

/// The names that [`by_name`] knows.
pub const NAMES: [&str; BUILT_IN.len()] = {
    let mut names = [""; BUILT_IN.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = BUILT_IN[index].0;
        index += 1;
    }
    names
};

/// The built-in network of that name.
pub fn by_name(name: &str) -> Option<Model> {
    let (name, build) = BUILT_IN.into_iter().find(|(known, _)| *known == name)?;
    Some(build(name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Name, tensors, values, forward and backward FLOPs.
    const TOTALS: [(&str, usize, u64, u64, u64); 9] = [
        ("alexnet", 16, 61_100_840, 1_428_376_960, 2_716_200_320),
        ("vgg16", 32, 138_357_544, 30_940_528_640, 61_707_649_024),
        ("vgg19", 38, 143_667_240, 39_264_124_928, 78_354_841_600),
        ("resnet50", 161, 25_557_032, 8_178_368_512, 16_120_709_120),
        ("resnet101", 314, 44_549_160, 15_602_810_880, 30_969_593_856),
        ("resnet152", 467, 60_192_808, 23_027_253_248, 45_818_478_592),
        ("googlenet", 173, 6_624_904, 2_996_752_384, 5_757_476_864),
        ("transformer_base", 186, 63_121_544, 16_727_932_928, 33_455_865_856),
        ("gpt2_small", 148, 124_439_808, 32_228_179_968, 64_456_359_936),
    ];

    #[test]
    fn totals_are_those_of_the_reference_implementations() {
        for (name, tensors, values, forward, backward) in TOTALS {
            let model = by_name(name).unwrap();
            assert_eq!(model.tensors().len(), tensors, "{name}");
            assert_eq!(model.values(), values, "{name}");
            assert_eq!(model.forward_flops(), forward, "{name}");
            assert_eq!(model.backward_flops(), backward, "{name}");
        }
    }

    #[test]
    fn every_name_is_known_and_no_other() {
        for name in NAMES {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert_eq!(by_name("resnet49"), None);
    }

    #[test]
    fn every_model_is_sound() {
        for name in NAMES {
            let model = by_name(name).unwrap();
            let tensors = model.tensors();
            let names: BTreeSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            assert_eq!(names.len(), tensors.len(), "{name}");
            let ready: BTreeSet<usize> = model.ready_order().iter().copied().collect();
            assert!(ready.into_iter().eq(0..tensors.len()), "{name}");
            let layers: BTreeSet<usize> = tensors.iter().map(|tensor| tensor.layer).collect();
            assert!(layers.into_iter().eq(0..model.layers().len()), "{name}");
            let backward = model.ready_order().iter().map(|&index| tensors[index].layer);
            assert!(backward.is_sorted_by(|one, next| one >= next), "{name}");
        }
    }
}
