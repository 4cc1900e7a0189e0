//! `thalweg predict` as a user meets it.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn thalweg(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_thalweg");
    Command::new(program).args(arguments).output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A folder of the test's own, removed when it ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("thalweg-predict-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn file(&self, name: &str, content: &str) -> String {
        std::fs::write(self.0.join(name), content).expect("a temporary file");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Small flows to one port, large ones to another, and one to a port of its own.
fn flows(count: u64) -> String {
    let mut table = String::from("start_us,src,src_port,dst,dst_port,protocol,bytes,end_us\n");
    for flow in 0..count {
        let (port, bytes) =
            if flow.is_multiple_of(2) { (80, 1_000 + flow % 7) } else { (443, 900_000 + flow) };
        let start = flow * 10;
        table.push_str(&format!(
            "{start},10.0.0.1,5000,10.0.0.2,{port},tcp,{bytes},{}\n",
            start + 5
        ));
    }
    table
}

#[test]
fn what_is_learned_bounds_flows() {
    let folder = Folder::new("learned");
    let input = folder.file("flows.csv", &flows(400));
    let model = folder.path("forest.bin");
    let train = thalweg(&["predict", "train", "--input", &input, "--out", &model]);
    assert_eq!(train.status.code(), Some(0), "{}", text(&train.stderr));
    assert!(text(&train.stdout).starts_with("learned from 400 flows in "));

    let stranger = format!("{}99999,10.0.0.1,5000,10.0.0.9,80,tcp,5,99999.5\n", flows(400));
    let tested = folder.file("tested.csv", &stranger);
    let out = folder.path("out");
    let eval = ["predict", "eval", "--input", &tested, "--model", &model];
    let plain = thalweg(&[&eval[..], &["--out", &out]].concat());
    assert_eq!(plain.status.code(), Some(0), "{}", text(&plain.stderr));
    assert!(text(&plain.stdout).contains("within their bounds       100.0000%"));
    let page = std::fs::read_to_string(folder.0.join("out/index.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("lower bound"));
    assert!(std::fs::read_to_string(folder.0.join("out/bounds.svg")).unwrap().starts_with("<svg"));

    let json = thalweg(&[&eval[..], &["--json"]].concat());
    let document: Value = serde_json::from_slice(&json.stdout).expect("one JSON document");
    assert_eq!(document["schema"], "thalweg.predict-eval/1");
    assert_eq!(document["known"], 400);
    assert_eq!(document["unknown"], 1, "nobody else went there");
    assert_eq!(document["bounded_share"], 1.0);
    let classes = &document["classes"];
    assert_eq!(classes["small"]["flows"], 200);
    assert!(classes["small"]["mean_gap_bytes"].as_f64().unwrap() < 7.0);
    assert!(classes["medium"]["mean_lower_bytes"].as_f64().unwrap() > 800_000.0);
    assert!(document["inference_ns"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_same_seed_gives_the_same_file() {
    let folder = Folder::new("seed");
    let input = folder.file("flows.csv", &flows(200));
    let bytes = |name: &str, more: &[&str]| {
        let model = folder.path(name);
        let train = ["predict", "train", "--input", &input, "--out", &model, "--json"];
        let output = thalweg(&[&train[..], more].concat());
        let document: Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
        assert_eq!(document["schema"], "thalweg.predict-train/1");
        assert_eq!(document["flows"], 200);
        std::fs::read(model).unwrap()
    };
    let one = bytes("one", &["--threads", "1"]);
    assert_eq!(bytes("three", &["--threads", "3"]), one);
    assert_ne!(bytes("other", &["--seed", "2"]), one);
}

#[test]
fn bad_input_is_one_line_and_exit_code_2() {
    let folder = Folder::new("bad");
    let good = folder.file("flows.csv", &flows(20));
    let bad = folder.file("bad.csv", "start_us,src,dst,bytes\n1,10.0.0.1,10.0.0.2,many\n");
    let empty = folder.file("empty.csv", "start_us,src,dst,bytes\n");
    let (out, missing) = (folder.path("forest.bin"), folder.path("missing"));
    let cases: [(&[&str], &str); 6] = [
        (
            &["train", "--input", &bad, "--out", &out],
            "line 2: column bytes: `many` is not a whole number",
        ),
        (&["train", "--input", &empty, "--out", &out], "no flow in it has ended"),
        (&["train", "--input", &missing, "--out", &out], "check the path"),
        (&["train", "--input", &good, "--out", &out, "--trees", "0"], "0 trees are no forest"),
        (&["train", "--input", &good, "--out", &out, "--beta", "2"], "take beta from 0 to 1"),
        (&["eval", "--input", &good, "--model", &good], "this is no model"),
    ];
    for (arguments, words) in cases {
        let output = thalweg(&[&["predict"], arguments].concat());
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with("thalweg: ") && complaint.contains(words), "{complaint}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn help_shows_the_table() {
    let help = text(&thalweg(&["predict", "train", "--help"]).stdout);
    for word in ["start_us", "dst_port", "fct_us", "flows.csv", "--depth"] {
        assert!(help.contains(word), "{word:?} is missing in:\n{help}");
    }
}
