//! Manual pages and completions, generated from the command definitions.

use std::fs;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{CompletionsArgs, ManArgs};
use crate::failure::{Context, Failure};
use crate::help::{self, USAGE, WORDS, Words};
use crate::output;

/// Implements `nlx man`: writes a page for each command.
pub(crate) fn run(args: &ManArgs) -> Result<(), Failure> {
    let folder = &args.folder;
    fs::create_dir_all(folder).context(&format!("cannot make {}", folder.display()))?;
    let mut root = help::command();
    root.build();
    for words in &WORDS {
        write(folder, command_of(&root, words.command)?, words)?;
    }
    Ok(())
}

/// Implements `nlx completions`.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut help::shown(&help::command()), "nlx", &mut text);
    output::line(String::from_utf8_lossy(&text).trim_end())
}

fn command_of<'a>(root: &'a Command, path: &[&str]) -> Result<&'a Command, Failure> {
    path.iter().try_fold(root, |command, name| {
        command.find_subcommand(name).ok_or_else(|| Failure::new(format!("there is no command {name}")))
    })
}

fn write(folder: &Path, command: &Command, words: &Words) -> Result<(), Failure> {
    let name = [&["nlx"], words.command].concat().join("-");
    let path = folder.join(format!("{name}.1"));
    let others = WORDS.iter().map(|other| [&["nlx"], other.command].concat().join("-"));
    let others = others.filter(|other| *other != name).map(|other| format!("{other}(1)"));
    let others: Vec<String> = others.chain(["nlxd(8)".to_string()]).collect();
    fs::write(&path, page(command, words, (&name, "1"), &others)?)
        .context(&format!("cannot write {}", path.display()))
}

/// Returns the page with this name and section.
pub(crate) fn page(
    command: &Command,
    words: &Words,
    (name, section): (&str, &str),
    others: &[String],
) -> Result<Vec<u8>, Failure> {
    let man = Man::new(command.clone()).title(name.to_uppercase()).section(section).manual("nlx");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|sub| !sub.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut rest = Roff::new();
    rest.control("SH", ["EXAMPLES"]);
    for (typed, purpose) in words.examples {
        rest.control("TP", []).text([bold(*typed)]).text([roman(*purpose)]);
    }
    rest.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in [("0", words.success), ("1", words.failure), ("2", USAGE)] {
        rest.control("TP", []).text([bold(status)]).text([roman(meaning)]);
    }
    rest.control("SH", ["SEE ALSO"]);
    rest.text([roman(others.join(", "))]);
    rest.to_writer(&mut page)?;
    Ok(page)
}
