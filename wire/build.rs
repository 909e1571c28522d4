//! Compiles `proto/*.proto` into Rust structs and into a set of file descriptors for reflection.
//!
//! `protox` is a compiler of schemas in Rust, so no `protoc` has to be installed.
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let proto_dir = Path::new("proto");
    println!("cargo::rerun-if-changed=proto");
    let mut sources: Vec<PathBuf> =
        fs::read_dir(proto_dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    sources.retain(|path| path.extension().is_some_and(|extension| extension == "proto"));
    sources.sort();

    let mut compiler = protox::Compiler::new([proto_dir])?;
    // Comments would become documentation of the structs, and are of no use at run time.
    compiler.include_source_info(true).open_files(&sources)?;
    let mut descriptors = compiler.file_descriptor_set();

    let out_dir = PathBuf::from(env::var("OUT_DIR")?);
    prost_build::Config::new().out_dir(&out_dir).compile_fds(descriptors.clone())?;

    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    fs::write(out_dir.join("descriptors.bin"), descriptors.encode_to_vec())?;
    Ok(())
}
