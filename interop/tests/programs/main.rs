//! The programs, each run on the important backends and used by independent clients.

#![cfg(unix)]

mod chat;
mod common;
mod get;
mod http;
mod https;
mod proxy;
mod support;
mod websocket;
