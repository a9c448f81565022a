//! The committed gRPC code is what the `.proto` files say.
//!
//! A build needs neither `protoc` nor this generator: what it writes is committed, and this test
//! compares. After a change of a `.proto` file run
//! `REWRITE=1 cargo test -p regent-api --test proto` and review the diff.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

const HEADER: &str = "//! Written by `REWRITE=1 cargo test -p regent-api --test proto` from \
                      `proto/regent/v1/`; edit those files instead.\n";

/// Messages that carry a session's secret: `crate::grpc` prints them without it.
const SECRETIVE: &[&str] = &[
    "CampaignRequest",
    "CampaignResponse",
    "RenewRequest",
    "ResignRequest",
    "WithdrawRequest",
    "AcceptRequest",
    "OfferRequest",
    "WarmRequest",
    "TransferRequest",
    "OpenSessionRequest",
    "RenewSessionRequest",
    "ShowSessionRequest",
    "TokenRequest",
    "CloseSessionRequest",
    "SessionResponse",
    "Hello",
];

fn home() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

fn descriptors() -> protox::prost_reflect::DescriptorPool {
    let mut compiler = protox::Compiler::new([home().join("proto")]).unwrap();
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file("regent/v1/regent.proto").unwrap();
    compiler.descriptor_pool()
}

/// What the generator writes: the code, and the descriptors that reflection serves.
fn generated() -> (String, Vec<u8>) {
    let mut compiler = protox::Compiler::new([home().join("proto")]).unwrap();
    compiler.include_source_info(true).include_imports(true);
    compiler.open_file("regent/v1/regent.proto").unwrap();
    let mut files = compiler.file_descriptor_set();
    let room = tempfile::tempdir().unwrap();
    let secretive = SECRETIVE.iter().map(|name| format!(".regent.v1.{name}"));
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
    let code_at = home().join("src/grpc/generated.rs");
    let descriptors_at = home().join("src/grpc/descriptors.bin");
    if std::env::var_os("REWRITE").is_some() {
        fs::write(&code_at, &code).unwrap();
        fs::write(&descriptors_at, &descriptors).unwrap();
    }
    let how = "run REWRITE=1 cargo test -p regent-api --test proto and review the diff";
    assert!(fs::read_to_string(code_at).unwrap_or_default() == code, "generated.rs is old; {how}");
    let committed = fs::read(descriptors_at).unwrap_or_default();
    assert!(committed == descriptors, "descriptors.bin is old; {how}");
}

#[test]
fn every_message_with_a_secret_is_printed_without_it() {
    let mut with_secret: Vec<_> = descriptors()
        .all_messages()
        .filter(|message| message.get_field_by_name("session_id").is_some())
        .map(|message| message.name().to_owned())
        .collect();
    with_secret.sort_unstable();
    let mut listed = SECRETIVE.to_vec();
    listed.sort_unstable();
    assert_eq!(with_secret, listed);
}
