//! Programs that are recorded, and replayed from their tapes.

#![cfg(unix)]

mod divergence;
mod edges;
mod dumps;
mod hostile;
mod programs;
mod support;
