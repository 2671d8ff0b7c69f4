//! What a program can learn of its tasks and workers.

mod dump;
mod hints;
mod metrics;
mod tasks;
mod trace;
mod waits;
