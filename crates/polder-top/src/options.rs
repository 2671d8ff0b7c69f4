//! The parsed command line.

use std::ffi::OsString;
use std::path::PathBuf;

pub const HELP: &str = "\
polder-top shows what a running program does that uses polder.

Usage: polder-top [--once] [--width COLUMNS] PATH

Start the program with POLDER_TOP=PATH in its environment; it makes a socket
there, which only its user can connect to.

  --once           print what is seen within a second as text, and end
  --width COLUMNS  of that text: 120, if nothing else is said
  --help           print this, and end
  --version        print the version, and end

Keys: q ends; up, down, page up, page down choose a group of tasks; left and
right choose by which column they are sorted, r turns that round; p pauses.
Where q, Ctrl-C or a signal does not end it at once, a second one does.

It ends with 0, with 1 if the program cannot be looked at, and with 2 if the
command line is wrong.
";

/// Wide enough for a table. A width beyond any terminal's is a mistake.
const WIDTHS: std::ops::RangeInclusive<u16> = 40..=1_000;

#[derive(PartialEq, Debug)]
pub enum Command {
    Help,
    Version,
    Watch(PathBuf),
    /// The path, and the number of columns.
    Once(PathBuf, u16),
}

impl Command {
    /// # Errors
    ///
    /// A message about the mistake.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
        let mut arguments = arguments.into_iter();
        let (mut path, mut once, mut width, mut only_paths) = (None, false, None, false);
        while let Some(argument) = arguments.next() {
            match argument.to_str() {
                Some("--") if !only_paths => only_paths = true,
                Some("--help" | "-h") if !only_paths => return Ok(Command::Help),
                Some("--version" | "-V") if !only_paths => return Ok(Command::Version),
                Some("--once") if !only_paths => once = true,
                Some("--width") if !only_paths => {
                    let value = arguments.next().ok_or("--width wants a number")?;
                    let value = value.to_str().and_then(|text| text.parse().ok());
                    let valid = value.filter(|value| WIDTHS.contains(value));
                    width = Some(valid.ok_or_else(|| {
                        let (least, most) = (WIDTHS.start(), WIDTHS.end());
                        format!("--width wants a number from {least} to {most}")
                    })?);
                }
                Some(text) if text.starts_with('-') && !only_paths => {
                    return Err(format!("there is no option {argument:?}"));
                }
                _ if path.is_some() => return Err("there is one path only".into()),
                _ if argument.is_empty() => return Err("the path is empty".into()),
                _ => path = Some(PathBuf::from(argument)),
            }
        }
        let path = path.ok_or("which program? Its POLDER_TOP is the path")?;
        match (once, width) {
            (true, width) => Ok(Command::Once(path, width.unwrap_or(120))),
            (false, None) => Ok(Command::Watch(path)),
            (false, Some(_)) => Err("--width is for --once: a terminal has its own".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Command, String> {
        Command::parse(
            words
                .split(' ')
                .filter(|it| !it.is_empty())
                .map(OsString::from),
        )
    }

    #[test]
    fn a_command_line_is_a_path_and_options_anywhere() {
        let path = PathBuf::from("/tmp/p");
        assert_eq!(parse("/tmp/p"), Ok(Command::Watch(path.clone())));
        assert_eq!(parse("--once /tmp/p"), Ok(Command::Once(path.clone(), 120)));
        assert_eq!(
            parse("/tmp/p --width 80 --once"),
            Ok(Command::Once(path, 80))
        );
        assert_eq!(parse("-- --once"), Ok(Command::Watch("--once".into())));
        assert_eq!(parse("-h"), Ok(Command::Help));
        assert_eq!(parse("x --version"), Ok(Command::Version));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (words, said) in [
            ("", "which program"),
            ("a b", "one path"),
            ("--fast a", "--fast"),
            ("--width", "--width"),
            ("--once --width 7 a", "from 40"),
            ("--once --width x a", "from 40"),
            ("--width 80 a", "--once"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(said), "{words}: {error}");
        }
    }
}
