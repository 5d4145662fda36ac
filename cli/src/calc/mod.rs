//! `nlx o2iblnd-calc`: computes the effect of the tunables of two sides (S-508). All numbers are
//! from [`lnet_o2iblnd::sizes`], with which the driver creates its queues.
//!
//! | module | holds |
//! | --- | --- |
//! | `input` | the two sides, from options and a file |
//! | `barriers` | settings that prevent them from connecting |
//! | `result` | all results, and their JSON |
//! | `warnings` | settings without effect, and settings that will fail |
//! | `table`, `explain` | the result for people: short, and with its reasons |
//! | `sweep`, `html` | many values of one tunable, in the terminal and as a page |

mod barriers;
mod explain;
mod html;
mod input;
mod result;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod warnings;

use lnet_o2iblnd::sizes::{MdPages, SizesError};

use crate::args::CalcArgs;
use crate::failure::Failure;
use crate::output;
use result::Calculation;

pub(crate) fn run(args: &CalcArgs) -> Result<(), Failure> {
    let peers = input::peers(args)?;
    let buffer = MdPages { fragments: args.fragments, gaps: args.gaps };
    if let Some(text) = &args.sweep {
        let sweep = sweep::Sweep::of(text, &peers, args.peers, buffer)?;
        if let Some(path) = &args.html {
            html::write(&sweep, path)?;
        }
        return if args.json { output::json(&sweep.to_json()) } else { output::line(&sweep) };
    }
    let all = Calculation::of(peers, args.peers, buffer).map_err(|error| refused(&error))?;
    if args.json {
        return output::json(&all.to_json());
    }
    if args.explain {
        return output::line(explain::text(&all));
    }
    output::line(table::text(&all))
}

fn refused(error: &SizesError) -> Failure {
    Failure::at("configuration", error.errno(), error.to_string())
}
