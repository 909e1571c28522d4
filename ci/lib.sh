# Sourced by the checks: the repository's root as the working folder, and a few helpers.
# shellcheck shell=bash
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0

# fail TEXT...: say why and end the check.
fail() {
    printf 'ci: %s\n' "$*" >&2
    exit 1
}

# spread NAME UNIT FIGURE...: how far the figures of several runs lie from each other.
spread() {
    printf '%s\n' "${@:3}" | sort -g | awk -v name="$1" -v unit="$2" '
        { figure[NR] = $1 }
        END {
            printf "%s in %d runs: least %s, median %s, greatest %s %s\n",
                name, NR, figure[1], figure[int((NR + 1) / 2)], figure[NR], unit
        }'
}

# median FIGURE...: the middle one, of an even number the lower of the two.
median() { printf '%s\n' "$@" | sort -g | sed -n "$((($# + 1) / 2))p"; }

# need_nightly: the nightly toolchain.
need_nightly() {
    rustup run nightly rustc --version || rustup toolchain install nightly --profile minimal
}

# need_packages PACKAGE...: installs the Debian packages that are not there yet.
need_packages() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && return
    # The lists of a fresh machine may be empty or old: they are refreshed when the first try fails.
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "${missing[@]}" ||
        { apt-get update -q && apt-get install -y -q --no-install-recommends "${missing[@]}"; }
}

# need_foreign_arm64: packages of aarch64 can be installed beside those of this machine.
need_foreign_arm64() {
    if ! dpkg --print-foreign-architectures | grep -qx arm64; then
        dpkg --add-architecture arm64
        apt-get update -q
    fi
}

# need_web_rustc PACKAGE...: Debian's second compiler, /usr/bin/rustc 1.96 or later, and the
# packages beside it. An old package list offers an older one that cannot build this workspace, so
# the lists are refreshed when it is missing or old.
need_web_rustc() {
    local have
    have=$(/usr/bin/rustc --version 2>/dev/null | sed -nE 's/^rustc 1\.([0-9]+).*/\1/p' || true)
    if [ "${have:-0}" -lt 96 ]; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -q
        apt-get install -y -q --no-install-recommends rustc-web "$@"
    fi
    need_packages rustc-web "$@"
}

# readme_command PREFIX: the first line of a code block in README.md that starts with PREFIX.
readme_command() {
    awk '/^```/ { inside = !inside; next } inside' README.md |
        sed 's/^\$ //; s/[[:space:]]*#.*$//' | grep -m1 "^$1" ||
        fail "README.md shows no command that starts with \"$1\""
}

# count_instructions PROGRAM FOLDER [PACKAGE]: runs a benchmark program under callgrind, its output
# in FOLDER/PACKAGE, watershed-counted where none is given. A file `program` there names it:
# pictures ask it what was inlined at the addresses that callgrind writes down, which change no
# count.
#
# The program is run from a copy whose path always has the same length: its heap depends on the
# length of its path, and so, by a few instructions, do its copies across page boundaries.
count_instructions() (
    package=${3:-watershed-counted}
    copy=$(mktemp -d /tmp/watershed-count.XXXXXXXX)
    trap 'rm -rf "$copy"' EXIT
    cp "$1" "$copy/instructions"
    rm -rf "${2:?}/$package"
    IAI_CALLGRIND_CALLGRIND_ARGS=--dump-instr=yes CARGO_PKG_NAME=$package \
        IAI_CALLGRIND_HOME=$2 "$copy/instructions" --bench
    printf '%s\n' "$1" >"$2/$package/program"
)

# instructions_program [CARGO-OPTION...]: builds the benchmark program `instructions` and prints its
# path. events_program: likewise the program `events`.
instructions_program() { counting_program --bench instructions "$@"; }
events_program() { counting_program --bench events --features events "$@"; }
counting_program() {
    cargo bench --locked --package watershed-counted --no-run "$@" 2>&1 |
        tee /dev/stderr | sed -n 's/.*Executable .* (\(.*\))$/\1/p' | xargs -r realpath
}
