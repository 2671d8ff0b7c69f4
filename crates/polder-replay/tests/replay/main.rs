//! Programs that are recorded, and replayed from their tapes.

#![cfg(unix)]

mod divergence;
mod dumps;
mod edges;
mod hostile;
mod programs;
mod support;
