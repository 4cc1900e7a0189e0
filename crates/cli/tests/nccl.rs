//! `thalweg nccl`: variables, programs that run with them, and errors. The check of a real library is a step of CI, since
//! the plug-in is built apart.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const LIBRARY: &str = "libnccl-net-thalweg.so";

/// A folder of the test's own, removed when it ends, with an empty file that stands for the library.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary folder");
        let folder = Folder(path.canonicalize().expect("it exists"));
        folder.file(LIBRARY);
        folder
    }

    fn file(&self, name: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, "").expect("a temporary file");
        path.display().to_string()
    }

    fn library(&self) -> String {
        self.0.join(LIBRARY).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn thalweg(arguments: &[&str]) -> Output {
    run(Path::new(env!("CARGO_BIN_EXE_thalweg")), arguments)
}

fn run(program: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("THALWEG_SERVER").output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Bad input: what is wrong, and what to change.
fn assert_refused(arguments: &[&str], words: &[&str]) {
    let output = thalweg(arguments);
    let reported = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {reported}");
    for word in words {
        assert!(reported.contains(word), "{word:?} is missing in: {reported}");
    }
}

// spec: N-08 sockets
#[test]
fn the_variables_are_exports_of_a_shell_and_json() {
    let folder = Folder::new("nccl env");
    let (library, token) = (folder.library(), folder.file("job token"));
    let mut arguments = vec!["nccl", "env", "--library", &library, "--server", "10.0.0.1:4808"];
    arguments.extend(["--switch", "10.0.0.2:4800", "--token-file", &token, "--interface", "eth1"]);
    let printed = text(&thalweg(&arguments).stdout);
    // A shell reads it back.
    let script = format!(
        "{printed}printf '%s\\n' \"$NCCL_NET_PLUGIN\" \"$NCCL_COLLNET_ENABLE\" \
                          \"$NCCL_NET_PLUGIN_REF_COUNT\" \"$THALWEG_SERVER\" \"$THALWEG_TOKEN_FILE\""
    );
    let read = Command::new("sh").args(["-c", &script]).output().expect("a shell");
    assert_eq!(
        text(&read.stdout),
        format!("{library}\n1\n1\n10.0.0.1:4808\n{token}\n"),
        "{printed}"
    );
    arguments.push("--json");
    let document: Value = serde_json::from_slice(&thalweg(&arguments).stdout).expect("JSON");
    assert_eq!(document["NCCL_NET_PLUGIN"], Value::from(library));
    assert_eq!(document["THALWEG_INTERFACE"], Value::from("eth1"));
    assert_eq!(document["THALWEG_SWITCH"], Value::from("10.0.0.2:4800"));
    assert_eq!(document.as_object().expect("an object").len(), 7);
}

// spec: N-08 sockets
#[test]
fn a_program_runs_in_this_process_with_the_variables() {
    let folder = Folder::new("nccl-run");
    let script = "echo $NCCL_NET_PLUGIN $NCCL_COLLNET_ENABLE $$; exit 7";
    let mut command = Command::new(env!("CARGO_BIN_EXE_thalweg"));
    command.args(["nccl", "run", "--library", &folder.library(), "--", "sh", "-c", script]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().expect("the program starts");
    // The same process: signals reach the program, and its exit code is its own.
    let expected = format!("{} 1 {}\n", folder.library(), child.id());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((text(&output.stdout), output.status.code()), (expected, Some(7)));
    let missing = ["nccl", "run", "--library", &folder.library(), "--", "no-such-program"];
    assert_refused(&missing, &["no-such-program cannot be run", "check its name"]);
}

#[test]
fn the_library_is_found_beside_the_program_and_in_lib() {
    let folder = Folder::new("nccl-bin");
    let (bin, lib) = (folder.0.join("bin"), folder.0.join("lib"));
    for directory in [&bin, &lib] {
        std::fs::create_dir_all(directory).expect("a folder");
    }
    let program = bin.join("thalweg");
    std::fs::hard_link(env!("CARGO_BIN_EXE_thalweg"), &program)
        .expect("a second name of the program");
    let found = || {
        let output = run(&program, &["nccl", "env", "--json"]);
        serde_json::from_slice::<Value>(&output.stdout).map_err(|_| text(&output.stderr))
    };
    let reported = found().expect_err("the library does not exist");
    for word in ["--library", "python3 -m thalweg.nccl", "cargo build"] {
        assert!(reported.contains(word), "{word:?} is missing in: {reported}");
    }
    for place in [lib.join(LIBRARY), bin.join(LIBRARY)] {
        std::fs::write(&place, "").expect("a file");
        let document = found().expect("it is found");
        assert_eq!(document["NCCL_NET_PLUGIN"], Value::from(place.display().to_string()));
    }
}

#[test]
fn bad_input_is_explained() {
    let folder = Folder::new("nccl-bad");
    let library = folder.library();
    let comma = folder.file("a,b.so");
    let env = |more: &[&'static str]| [&["nccl", "env", "--library", &library][..], more].concat();
    assert_refused(&["nccl", "env", "--library", "missing.so"], &["missing.so", "check the path"]);
    assert_refused(&["nccl", "env", "--library", &comma], &["comma", "copy it"]);
    assert_refused(&env(&["--switch", "a:1"]), &["--switch", "--server", "--secret-file"]);
    assert_refused(&env(&["--token-file", "missing"]), &["missing", "check the path"]);
    assert_refused(&env(&["--interface", "a", "--bind", "10.0.0.1"]), &["--bind"]);
    assert_refused(&["nccl", "run", "--library", &library], &["COMMAND"]);
    assert_refused(&["nccl", "check", "--library", &library], &["is not loaded", "too short"]);
    assert_refused(&["nccl", "check", "--library", &library, "--ranks", "1"], &["--ranks"]);
}
