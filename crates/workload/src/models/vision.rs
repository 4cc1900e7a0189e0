//! Image classifiers.

use crate::model::Model;
use crate::models::builder::Builder;

const CLASSES: u64 = 1_000;

/// AlexNet, in the form that has no local normalisation.
pub(super) fn alexnet(name: &'static str) -> Model {
    let mut net = Builder::new(name);
    for (index, io, kernel, side) in [
        (0, (3, 64), 11, 55),
        (3, (64, 192), 5, 27),
        (6, (192, 384), 3, 13),
        (8, (384, 256), 3, 13),
        (10, (256, 256), 3, 13),
    ] {
        net.conv_with_bias(&format!("features.{index}"), io, kernel, side);
    }
    classifier(&mut net, [1, 4, 6], 256 * 6 * 6);
    net.finish()
}

/// GoogLeNet with batch normalisation and without auxiliary classifiers.
pub(super) fn googlenet(name: &'static str) -> Model {
    let mut net = Builder::new(name);
    conv_norm(&mut net, "conv1", (3, 64), 7, 112);
    conv_norm(&mut net, "conv2", (64, 64), 1, 56);
    conv_norm(&mut net, "conv3", (64, 192), 3, 56);
    let mut inputs = 192;
    for (name, side, widths) in [
        ("3a", 28, [64, 96, 128, 16, 32, 32]),
        ("3b", 28, [128, 128, 192, 32, 96, 64]),
        ("4a", 14, [192, 96, 208, 16, 48, 64]),
        ("4b", 14, [160, 112, 224, 24, 64, 64]),
        ("4c", 14, [128, 128, 256, 24, 64, 64]),
        ("4d", 14, [112, 144, 288, 32, 64, 64]),
        ("4e", 14, [256, 160, 320, 32, 128, 128]),
        ("5a", 7, [256, 160, 320, 32, 128, 128]),
        ("5b", 7, [384, 192, 384, 48, 128, 128]),
    ] {
        inputs = inception(&mut net, &format!("inception{name}"), inputs, side, widths);
    }
    net.linear("fc", (inputs, CLASSES), 1, 0);
    net.finish()
}

/// VGG, by the number of convolutions in each of its stages.
pub(super) fn vgg(name: &'static str, convolutions: [usize; 5]) -> Model {
    let mut net = Builder::new(name);
    let (mut inputs, mut side, mut index) = (3, 224, 0);
    for (count, outputs) in convolutions.into_iter().zip([64, 128, 256, 512, 512]) {
        for _ in 0..count {
            net.conv_with_bias(&format!("features.{index}"), (inputs, outputs), 3, side);
            inputs = outputs;
            // Every convolution is followed by a rectifier, every stage by a pooling.
            index += 2;
        }
        index += 1;
        side /= 2;
    }
    classifier(&mut net, [0, 3, 6], inputs * side * side);
    net.finish()
}

fn classifier(net: &mut Builder, indices: [u64; 3], inputs: u64) {
    let sizes = [(inputs, 4_096), (4_096, 4_096), (4_096, CLASSES)];
    for (index, io) in indices.into_iter().zip(sizes) {
        net.linear(&format!("classifier.{index}"), io, 1, 0);
    }
}

/// ResNet, by the number of blocks in each of its stages.
pub(super) fn resnet(name: &'static str, blocks: [usize; 4]) -> Model {
    let mut net = Builder::new(name);
    net.conv("conv1", (3, 64), 7, 112);
    net.norm("bn1", 64, 0);
    let (mut inputs, mut side) = (64, 56);
    for (stage, count) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        for block in 0..count {
            let output_side = if stage > 0 && block == 0 { side / 2 } else { side };
            let name = format!("layer{}.{block}", stage + 1);
            bottleneck(&mut net, &name, (inputs, width), (side, output_side));
            (inputs, side) = (4 * width, output_side);
        }
    }
    net.linear("fc", (inputs, CLASSES), 1, 0);
    net.finish()
}

/// Narrows, convolves, widens to four times the width. Where the shape changes, so does the shortcut.
fn bottleneck(net: &mut Builder, name: &str, (inputs, width): (u64, u64), side: (u64, u64)) {
    let outputs = 4 * width;
    for (index, io, kernel, side) in [
        (1, (inputs, width), 1, side.0),
        (2, (width, width), 3, side.1),
        (3, (width, outputs), 1, side.1),
    ] {
        net.conv(&format!("{name}.conv{index}"), io, kernel, side);
        net.norm(&format!("{name}.bn{index}"), io.1, 0);
    }
    if inputs != outputs {
        net.conv(&format!("{name}.downsample.0"), (inputs, outputs), 1, side.1);
        net.norm(&format!("{name}.downsample.1"), outputs, 0);
    }
}

/// Four branches side by side; answers how many channels they make together.
fn inception(net: &mut Builder, name: &str, inputs: u64, side: u64, widths: [u64; 6]) -> u64 {
    let [direct, narrow, wide, narrow_too, wide_too, pooled] = widths;
    for (branch, io, kernel) in [
        ("branch1", (inputs, direct), 1),
        ("branch2.0", (inputs, narrow), 1),
        ("branch2.1", (narrow, wide), 3),
        ("branch3.0", (inputs, narrow_too), 1),
        // The paper has 5 × 5 here; the reference weights were trained with 3 × 3.
        ("branch3.1", (narrow_too, wide_too), 3),
        ("branch4.1", (inputs, pooled), 1),
    ] {
        conv_norm(net, &format!("{name}.{branch}"), io, kernel, side);
    }
    direct + wide + wide_too + pooled
}

fn conv_norm(net: &mut Builder, name: &str, io: (u64, u64), kernel: u64, side: u64) {
    net.conv(&format!("{name}.conv"), io, kernel, side);
    net.norm(&format!("{name}.bn"), io.1, 0);
}
