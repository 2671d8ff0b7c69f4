//! What a program does that was started with `POLDER_TOP=/path`: it tells so once a second, on a
//! line of JSON (`line`), which is read (`feed`), compared with the one before (`sample`), and
//! drawn (`screen`). `app` has what the user has chosen, and `text` what keeps a program that means
//! no good from the terminal.
//!
//! Nothing here but `feed`, `ending` and the program itself does any input or output, so that all
//! of it is tested without a terminal.

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
