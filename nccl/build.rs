//! Has the loader keep the library when NCCL unloads it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // spec: N-07
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-thalweg.so");
}
