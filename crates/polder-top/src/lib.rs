//! Shows what a program that was started with `POLDER_TOP=/path` does. It sends a line of JSON once
//! a second (`line`), which is read (`feed`), compared with the one before (`sample`), and drawn
//! (`screen`). `app` has the user's choices, and `text` protects the terminal from a malicious
//! program.
//!
//! Only `feed`, `ending` and the program itself do any input or output, so that everything else is
//! tested without a terminal.

pub mod app;
#[cfg(unix)]
pub mod ending;
#[cfg(unix)]
pub mod feed;
pub mod line;
pub mod options;
pub mod sample;
pub mod screen;
pub mod text;
