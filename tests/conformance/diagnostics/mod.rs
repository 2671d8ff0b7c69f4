//! What a program can learn of its tasks and workers.

mod dump;
mod metrics;
mod tasks;
