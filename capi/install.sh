#!/bin/sh
# install.sh PREFIX: builds the C library and installs it, its header and its pkg-config file below PREFIX.
#
#   DESTDIR   a folder to put before PREFIX, for packagers
#   PROFILE   cargo's profile, "release" when not set
#   CARGO     the cargo to use
set -eu
prefix=${1:?usage: install.sh PREFIX}
case $prefix in /*) ;; *) echo "install.sh: PREFIX must be an absolute path: $prefix" >&2; exit 2 ;; esac
profile=${PROFILE:-release}
cargo=${CARGO:-cargo}
cd "$(dirname "$0")"

"$cargo" build --quiet --locked --package watershed-capi --lib --profile "$profile"
# The dev profile is the one whose folder has another name.
folder=$profile
[ "$profile" = dev ] && folder=debug
metadata=$("$cargo" metadata --format-version 1 --no-deps --locked)
target=$(printf '%s' "$metadata" | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
built=$target/${CARGO_BUILD_TARGET:+$CARGO_BUILD_TARGET/}$folder
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' ../Cargo.toml)
abi=$(sed -n 's/.*const ABI_VERSION: u32 = \([0-9]*\);.*/\1/p' build.rs)
[ -n "$version" ] && [ -n "$abi" ] || { echo "install.sh: cannot tell the version" >&2; exit 1; }

root=${DESTDIR:-}$prefix
mkdir -p "$root/lib/pkgconfig" "$root/include"
case $(uname -s) in
Darwin)
    real=libwatershed.$version.dylib; soname=libwatershed.$abi.dylib; plain=libwatershed.dylib
    private="-framework Security -lSystem -lm" ;;
*)
    real=libwatershed.so.$version; soname=libwatershed.so.$abi; plain=libwatershed.so
    private="-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc" ;;
esac
# Removed first: a program that runs keeps the file it has mapped.
rm -f "$root/lib/$real" "$root/lib/$soname" "$root/lib/$plain" "$root/lib/libwatershed.a"
cp "$built/$plain" "$root/lib/$real"
ln -s "$real" "$root/lib/$soname"
ln -s "$soname" "$root/lib/$plain"
cp "$built/libwatershed.a" "$root/lib/libwatershed.a"
cp include/watershed.h "$root/include/watershed.h"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" -e "s|@LIBS_PRIVATE@|$private|" watershed.pc.in \
    >"$root/lib/pkgconfig/watershed.pc"
