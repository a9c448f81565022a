//! The committed gRPC code is what the `.proto` files say.
//!
//! A build needs neither `protoc` nor this generator: what it writes is committed, and this test
//! compares. After a change of a `.proto` file run
//! `REWRITE=1 cargo test -p regent-api --test proto` and commit what it writes.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

const HEADER: &str = "//! Written by `REWRITE=1 cargo test -p regent-api --test proto` from \
                      `proto/regent/v1/`; edit those files instead.\n";

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn descriptors() -> protox::prost_reflect::DescriptorPool {
    let mut compiler = protox::Compiler::new([home().join("proto")]).unwrap();
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file("regent/v1/regent.proto").unwrap();
    compiler.descriptor_pool()
}

/// Messages that carry a session's secret, or a token's. Their code has no `Debug` of its own: `crate::grpc` gives them one that
/// hides it.
fn secretive() -> Vec<String> {
    descriptors()
        .all_messages()
        .filter(|message| {
            ["session_id", "bearer_token"]
                .iter()
                .any(|secret| message.get_field_by_name(secret).is_some())
        })
        .map(|message| message.name().to_owned())
        .collect()
}

/// What the generator writes: the code, and the descriptors that reflection serves.
fn generated() -> (String, Vec<u8>) {
    let mut compiler = protox::Compiler::new([home().join("proto")]).unwrap();
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file("regent/v1/regent.proto").unwrap();
    let mut files = compiler.file_descriptor_set();
    let room = tempfile::tempdir().unwrap();
    let secretive = secretive().into_iter().map(|name| format!(".regent.v1.{name}"));
    tonic_prost_build::configure()
        .build_transport(false)
        .btree_map(".")
        .bytes(".")
        .skip_debug(secretive)
        .codec_path("crate::grpc::PlainCodec")
        .emit_rerun_if_changed(false)
        .out_dir(room.path())
        .compile_fds(files.clone())
        .unwrap();
    let code = fs::read_to_string(room.path().join("regent.v1.rs")).unwrap();
    // Comments are for readers of the files; reflection serves shapes.
    for file in &mut files.file {
        file.source_code_info = None;
    }
    (format!("{HEADER}\n{code}"), files.encode_to_vec())
}

#[test]
fn the_committed_code_is_what_the_proto_files_say() {
    let (code, descriptors) = generated();
    let code_at = home().join("generated/regent_v1.rs");
    let descriptors_at = home().join("generated/descriptors.bin");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&code_at, &code).unwrap();
        fs::write(&descriptors_at, &descriptors).unwrap();
    }
    let how = "run REWRITE=1 cargo test -p regent-api --test proto and commit what it writes";
    assert!(fs::read_to_string(code_at).unwrap_or_default() == code, "regent_v1.rs is old; {how}");
    let committed = fs::read(descriptors_at).unwrap_or_default();
    assert!(committed == descriptors, "descriptors.bin is old; {how}");
}

#[test]
fn every_message_with_a_secret_is_printed_without_it() {
    // The other test compares this with what is committed, and may be rewriting that right now.
    let (code, secretive) = (generated().0, secretive());
    assert!(secretive.iter().any(|name| name == "Hello"), "{secretive:?}");
    for name in secretive {
        let (before, _) = code.split_once(&format!("pub struct {name} {{")).unwrap();
        let attributes = before.rsplit("}\n").next().unwrap();
        assert!(attributes.contains("#[prost(skip_debug)]"), "{name}: {attributes}");
    }
}
