//! The programs, each run on every backend that counts here and used by clients that know nothing
//! of polder.

#![cfg(unix)]

mod chat;
mod common;
mod get;
mod http;
mod https;
mod proxy;
mod support;
mod websocket;
