//! Kernels on untrusted bytes: fragment walk, varint decode, protobuf field scan.
