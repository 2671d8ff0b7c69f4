//! The programs, each run on the important backends and used by independent clients.

#![cfg(unix)]

mod axum;
mod chat;
mod common;
#[cfg(any(feature = "glib", feature = "libuv"))]
mod embedded;
mod fetch;
mod get;
mod hello;
mod http;
mod https;
mod proxy;
#[path = "../shared/mod.rs"]
mod shared;
mod support;
mod websocket;
