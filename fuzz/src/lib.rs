//! Fuzz targets for every parser and every trust boundary, on stable Rust.
