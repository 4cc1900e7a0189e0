//! Compares what is built in with reference data beside the project, where that is present.

use std::fs;
use std::path::{Path, PathBuf};

use thalweg_lab::testing::{Lack, skip};
use thalweg_workload::{Model, SizeDistribution, models};

/// The sorted files of a folder of reference data. None, and the test is skipped, where there is no data.
fn files(folder: &str, extension: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(folder);
    let Ok(entries) = fs::read_dir(&folder) else {
        skip(Lack::Data, "there is no reference data at ../shared/data beside the project");
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("a readable folder").path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    paths.sort();
    paths
}

fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("a plain name")
}

/// Means by linear interpolation, rounded to the byte.
const MEANS: [(&str, f64); 19] = [
    ("homa_fb_cache_follower", 686_866.0),
    ("homa_fb_web_server", 62_229.0),
    ("homa_w1_fb_memcached", 185.0),
    ("homa_w2_google_search_rpc", 423.0),
    ("homa_w3_google_all_rpc", 2_890.0),
    ("homa_w4_fb_hadoop", 121_849.0),
    ("homa_w5_websearch_dctcp", 2_510_778.0),
    ("hpcc_alistorage2019", 40_870.0),
    ("hpcc_fb_hadoop", 120_421.0),
    ("hpcc_google_rpc2008", 2_892.0),
    ("hpcc_websearch", 1_711_250.0),
    ("opera_datamining", 5_036_535.0),
    ("opera_fb_hadoop_interrack", 3_423_728.0),
    ("opera_websearch", 1_490_033.0),
    ("pias_datamining_vl2", 7_470_236.0),
    ("pias_websearch_dctcp", 1_665_831.0),
    ("tg_datamining_vl2", 12_658_199.0),
    ("tg_fb_memcached", 342.0),
    ("tg_websearch_dctcp", 1_711_250.0),
];

#[test]
fn published_size_curves_have_their_means() {
    let paths = files("cdf", "csv");
    let known = paths.iter().filter(|path| MEANS.iter().any(|(name, _)| *name == stem(path)));
    assert!(paths.is_empty() || known.count() == MEANS.len(), "a curve is missing: {paths:?}");
    for path in paths {
        let text = fs::read_to_string(&path).expect("a readable file");
        let sizes = SizeDistribution::from_csv(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let stated = MEANS.iter().find(|(name, _)| *name == stem(&path));
        if let Some((name, mean)) = stated {
            assert!((sizes.mean() - mean).abs() <= 0.5 + 1e-6, "{name}: {}", sizes.mean());
        }
        match stem(&path) {
            "tg_websearch_dctcp" => assert_eq!(sizes, SizeDistribution::web_search()),
            "tg_datamining_vl2" => assert_eq!(sizes, SizeDistribution::data_mining()),
            _ => {}
        }
    }
}

#[test]
fn built_in_models_are_the_reference_ones() {
    let paths = files("models", "json");
    let known = paths.iter().filter(|path| models::NAMES.contains(&stem(path)));
    assert!(paths.is_empty() || known.count() == models::NAMES.len(), "a model is missing");
    for path in paths {
        let text = fs::read_to_string(&path).expect("a readable file");
        let reference = Model::from_json(&text).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let Some(built_in) = models::by_name(stem(&path)) else { continue };
        assert_eq!(built_in.tensors(), reference.tensors(), "{path:?}");
        assert_eq!(built_in.ready_order(), reference.ready_order(), "{path:?}");
        assert_eq!(built_in.forward_flops(), reference.forward_flops(), "{path:?}");
        assert_eq!(built_in.backward_flops(), reference.backward_flops(), "{path:?}");
        // The reference counts all work of a Transformer's attention for its first layer.
        if stem(&path) != "transformer_base" {
            assert_eq!(built_in.layers(), reference.layers(), "{path:?}");
        }
    }
}
