//! What each runtime has for files, and for calls that block.

use std::future::Future;
use std::hint::black_box;
use std::io::{self, SeekFrom};
use std::path::PathBuf;

use crate::peers;
use crate::program::Peer;

/// A runtime's files.
pub trait Files: Peer {
    type Open: Send;

    fn read(path: PathBuf) -> impl Future<Output = io::Result<Vec<u8>>> + Send;

    fn write(path: PathBuf, bytes: &'static [u8]) -> impl Future<Output = io::Result<()>> + Send;

    fn open(path: PathBuf) -> impl Future<Output = io::Result<Self::Open>> + Send;

    fn open_to_write(path: PathBuf) -> impl Future<Output = io::Result<Self::Open>> + Send;

    /// Creates or truncates it.
    fn create(path: PathBuf) -> impl Future<Output = io::Result<Self::Open>> + Send;

    /// Reads from where the file is.
    fn next(
        file: &mut Self::Open,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;

    fn seek(file: &mut Self::Open, to: u64) -> impl Future<Output = io::Result<u64>> + Send;

    /// Writes where the file is.
    fn append(file: &mut Self::Open, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Waits for what the runtime writes behind.
    fn flush(file: &mut Self::Open) -> impl Future<Output = io::Result<()>> + Send;

    /// Flushes, and waits for the disk.
    fn sync(file: &mut Self::Open) -> impl Future<Output = io::Result<()>> + Send;

    /// Calls an empty function where it may block.
    fn unblock() -> impl Future<Output = ()> + Send;
}

impl Files for peers::polder::Spawn {
    type Open = polder::fs::File;

    async fn read(path: PathBuf) -> io::Result<Vec<u8>> {
        polder::fs::read(path).await
    }

    async fn write(path: PathBuf, bytes: &'static [u8]) -> io::Result<()> {
        polder::fs::write(path, bytes).await
    }

    async fn open(path: PathBuf) -> io::Result<Self::Open> {
        polder::fs::File::open(path).await
    }

    async fn open_to_write(path: PathBuf) -> io::Result<Self::Open> {
        let mut options = polder::fs::OpenOptions::new();
        options.write(true).open(path).await
    }

    async fn create(path: PathBuf) -> io::Result<Self::Open> {
        polder::fs::File::create(path).await
    }

    async fn next(file: &mut Self::Open, buffer: &mut [u8]) -> io::Result<usize> {
        polder::io::AsyncReadExt::read(file, buffer).await
    }

    async fn seek(file: &mut Self::Open, to: u64) -> io::Result<u64> {
        polder::io::AsyncSeekExt::seek(file, SeekFrom::Start(to)).await
    }

    async fn append(file: &mut Self::Open, bytes: &[u8]) -> io::Result<()> {
        polder::io::AsyncWriteExt::write_all(file, bytes).await
    }

    async fn flush(file: &mut Self::Open) -> io::Result<()> {
        polder::io::AsyncWriteExt::flush(file).await
    }

    async fn sync(file: &mut Self::Open) -> io::Result<()> {
        polder::io::AsyncWriteExt::flush(file).await?;
        file.sync_all().await
    }

    async fn unblock() {
        polder::unblock(|| black_box(())).await;
    }
}

impl Files for peers::tokio::CurrentThread {
    type Open = tokio::fs::File;

    async fn read(path: PathBuf) -> io::Result<Vec<u8>> {
        tokio::fs::read(path).await
    }

    async fn write(path: PathBuf, bytes: &'static [u8]) -> io::Result<()> {
        tokio::fs::write(path, bytes).await
    }

    async fn open(path: PathBuf) -> io::Result<Self::Open> {
        tokio::fs::File::open(path).await
    }

    async fn open_to_write(path: PathBuf) -> io::Result<Self::Open> {
        let mut options = tokio::fs::OpenOptions::new();
        options.write(true).open(path).await
    }

    async fn create(path: PathBuf) -> io::Result<Self::Open> {
        tokio::fs::File::create(path).await
    }

    async fn next(file: &mut Self::Open, buffer: &mut [u8]) -> io::Result<usize> {
        tokio::io::AsyncReadExt::read(file, buffer).await
    }

    async fn seek(file: &mut Self::Open, to: u64) -> io::Result<u64> {
        tokio::io::AsyncSeekExt::seek(file, SeekFrom::Start(to)).await
    }

    async fn append(file: &mut Self::Open, bytes: &[u8]) -> io::Result<()> {
        tokio::io::AsyncWriteExt::write_all(file, bytes).await
    }

    async fn flush(file: &mut Self::Open) -> io::Result<()> {
        tokio::io::AsyncWriteExt::flush(file).await
    }

    async fn sync(file: &mut Self::Open) -> io::Result<()> {
        tokio::io::AsyncWriteExt::flush(file).await?;
        file.sync_all().await
    }

    async fn unblock() {
        let task = tokio::task::spawn_blocking(|| black_box(()));
        task.await.expect("it does not panic");
    }
}

impl Files for peers::smol::Local {
    type Open = smol::fs::File;

    async fn read(path: PathBuf) -> io::Result<Vec<u8>> {
        smol::fs::read(path).await
    }

    async fn write(path: PathBuf, bytes: &'static [u8]) -> io::Result<()> {
        smol::fs::write(path, bytes).await
    }

    async fn open(path: PathBuf) -> io::Result<Self::Open> {
        smol::fs::File::open(path).await
    }

    async fn open_to_write(path: PathBuf) -> io::Result<Self::Open> {
        let mut options = smol::fs::OpenOptions::new();
        options.write(true).open(path).await
    }

    async fn create(path: PathBuf) -> io::Result<Self::Open> {
        smol::fs::File::create(path).await
    }

    async fn next(file: &mut Self::Open, buffer: &mut [u8]) -> io::Result<usize> {
        smol::io::AsyncReadExt::read(file, buffer).await
    }

    async fn seek(file: &mut Self::Open, to: u64) -> io::Result<u64> {
        smol::io::AsyncSeekExt::seek(file, SeekFrom::Start(to)).await
    }

    async fn append(file: &mut Self::Open, bytes: &[u8]) -> io::Result<()> {
        smol::io::AsyncWriteExt::write_all(file, bytes).await
    }

    async fn flush(file: &mut Self::Open) -> io::Result<()> {
        smol::io::AsyncWriteExt::flush(file).await
    }

    async fn sync(file: &mut Self::Open) -> io::Result<()> {
        smol::io::AsyncWriteExt::flush(file).await?;
        file.sync_all().await
    }

    async fn unblock() {
        smol::unblock(|| black_box(())).await;
    }
}
