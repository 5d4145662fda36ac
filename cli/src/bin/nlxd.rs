//! `nlxd`: the helper process of nlx.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    nlx_cli::nlxd()
}
