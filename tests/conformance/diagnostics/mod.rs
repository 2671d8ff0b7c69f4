//! Information for a program about its tasks and workers.

mod dump;
mod hints;
mod metrics;
mod tasks;
mod trace;
mod waits;
