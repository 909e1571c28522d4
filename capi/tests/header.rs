//! `include/watershed.h` is what cbindgen makes of the sources, and says what the sources say.

use std::path::Path;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("cbindgen.toml");
    let sources = ["types.rs", "guard.rs", "api.rs", "sink.rs", "queries.rs"]
        .map(|file| folder().join("src").join(file));
    let builder = sources
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, file| builder.with_src(file));
    let mut text = Vec::new();
    builder.generate().expect("the sources are understood").write(&mut text);
    for_c(&String::from_utf8(text).expect("UTF-8"))
}

/// What Rust's documentation says of safety is said to C in other words.
fn for_c(header: &str) -> String {
    let mut lines = Vec::new();
    for line in header.lines() {
        match line {
            " * # Safety" => lines.push(" * The caller promises:".to_owned()),
            " * See the module." => {
                // Nothing beyond what holds for all functions: the heading goes too, and the empty
                // line before it.
                lines.truncate(lines.len() - 2);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n") + "\n"
}

#[test]
fn the_header_has_not_drifted() {
    let path = folder().join("include/watershed.h");
    let generated = generated();
    // The one command that writes it: WATERSHED_WRITE_HEADER=1 cargo test -p watershed-capi --test
    // header
    if std::env::var_os("WATERSHED_WRITE_HEADER").is_some() {
        std::fs::write(&path, &generated).expect("the header can be written");
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "include/watershed.h is not what the sources say; write it with\n  \
         WATERSHED_WRITE_HEADER=1 cargo test -p watershed-capi --test header\n{}",
        first_difference(&committed, &generated)
    );
}

fn first_difference(committed: &str, generated: &str) -> String {
    let (mut old, mut new) = (committed.lines(), generated.lines());
    for line in 1.. {
        match (old.next(), new.next()) {
            (None, None) => break,
            (old, new) if old != new => {
                return format!("line {line}:\n- {}\n+ {}", old.unwrap_or(""), new.unwrap_or(""));
            }
            _ => {}
        }
    }
    String::new()
}

/// Adapters are written against these declarations: they are a promise, not an outcome.
#[test]
fn the_promised_declarations_are_there() {
    let header: String = generated().split_whitespace().collect::<Vec<_>>().join(" ");
    let declarations = [
        "typedef struct ws_buffer ws_buffer;",
        "ws_buffer *ws_buffer_create(size_t size_bytes, ws_policy policy);",
        "void ws_buffer_destroy(ws_buffer *buffer);",
        "bool ws_buffer_copy_chunk(ws_buffer *buffer, uint16_t producer_id, ws_identity identity, uint16_t writer_id, \
         uint32_t chunk_id, uint16_t num_fragments, uint8_t flags, bool complete, const uint8_t *src, \
         size_t src_size_bytes);",
        "bool ws_buffer_try_patch(ws_buffer *buffer, uint16_t producer_id, uint16_t writer_id, uint32_t chunk_id, \
         const ws_patch *patches, size_t num_patches, bool other_patches_pending);",
        "void ws_buffer_end_writer(ws_buffer *buffer, uint16_t producer_id, uint16_t writer_id);",
        "void ws_buffer_end_producer(ws_buffer *buffer, uint16_t producer_id);",
        "void ws_buffer_ledger(const ws_buffer *buffer, ws_ledger *out);",
        "void ws_buffer_begin_read(ws_buffer *buffer);",
        "bool ws_buffer_read_next(ws_buffer *buffer, ws_packet *out);",
        "ws_buffer *ws_buffer_clone_read_only(const ws_buffer *buffer);",
        "void ws_buffer_set_read_only(ws_buffer *buffer);",
        "void ws_buffer_set_overwrite_sink(ws_buffer *buffer, ws_overwrite_fn sink, void *user);",
        "void ws_buffer_stats(const ws_buffer *buffer, ws_stats *out);",
        "size_t ws_buffer_writer_stats(const ws_buffer *buffer, ws_writer_stats *out, size_t capacity);",
        "size_t ws_buffer_size(const ws_buffer *buffer);",
        "size_t ws_buffer_used_size(const ws_buffer *buffer);",
        "size_t ws_buffer_write_offset(const ws_buffer *buffer);",
        "size_t ws_buffer_memory_usage(const ws_buffer *buffer);",
        "const uint8_t *ws_buffer_ring(const ws_buffer *buffer);",
        "ws_policy ws_buffer_policy(const ws_buffer *buffer);",
        "bool ws_buffer_has_data(const ws_buffer *buffer);",
        "const char *ws_version(void);",
        "typedef bool (*ws_overwrite_fn)(void *user, const ws_packet *packet);",
    ];
    for declaration in declarations {
        assert!(header.contains(declaration), "the header does not have: {declaration}");
    }
}
