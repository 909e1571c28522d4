# Sourced by the scripts that count instructions, after lib.sh.
# shellcheck shell=bash

# need_instruction_counter: valgrind, and the runner of the version that Cargo.lock names.
need_instruction_counter() {
    local version tools=$PWD/target/tools
    need_packages valgrind
    version=$(sed -n '/^name = "iai-callgrind"$/,/^version/s/^version = "\(.*\)"$/\1/p' Cargo.lock)
    export IAI_CALLGRIND_RUNNER=$tools/bin/iai-callgrind-runner
    cargo install --list --root "$tools" | grep -qF "iai-callgrind-runner v$version:" ||
        cargo install --quiet --locked --root "$tools" --version "$version" iai-callgrind-runner
}

# count LOG FOLDER [CARGO-OPTION...]: builds the benchmark programs and counts them below FOLDER.
# The output is in LOG, and is printed on a failure. Older revisions have one program.
count() {
    local log=$1
    count_programs "${@:2}" >"$log" 2>&1 || { cat "$log"; return 1; }
}
count_programs() {
    local program folder=$1
    rm -rf "$folder"
    program=$(instructions_program "${@:2}") && count_instructions "$program" "$folder" || return 1
    [ -f perf/counted/benches/events.rs ] || return 0
    program=$(events_program "${@:2}") && count_instructions "$program" "$folder" watershed-counted-events
}

# The bench profile: the library is built for it already.
perf() { perf_with "" "$@"; }
# perf_with FEATURES ARGUMENT...
perf_with() {
    cargo run --quiet --locked --profile bench --package watershed-perf --no-default-features \
        --features "$1" -- "${@:2}"
}
flamegraphs() { cargo run --quiet --locked --profile bench --package watershed-flamegraphs -- "$@"; }

# draw_what_grew OLD NEW: a differential flame graph, below target/gate-flamegraphs, of each
# benchmark whose limit was broken. OLD and NEW are the folders of their counts.
draw_what_grew() {
    local broken=()
    mapfile -t broken <target/gate-broken.txt
    rm -rf target/gate-flamegraphs
    echo
    echo "what grew is red in:"
    flamegraphs compare --old "$1" --new "$2" --into target/gate-flamegraphs "${broken[@]}" ||
        echo "ci: no picture could be drawn" >&2
}
