//! The files of a thread that records or replays. A call with a path is made by a thread, and its
//! result is on the tape when the worker gets it. Reads, writes and seeks of an open file are made
//! by the worker, so what they return is part of the poll.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::DirEntryExt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use polder::kernel::files::{
    Call, DirEntry, FileType, Files, Metadata, OpenFile, OpenOptions, Stat,
};

use crate::arrivals::job;
use crate::deck::{Handle, null, remark, text, with};
use crate::shared::lock;
use crate::tape::{Filled, Kept, Tag, checked, kept_as, kept_fields};

pub(crate) struct TapedFiles;

impl Files for TapedFiles {
    fn open(&self, path: PathBuf, options: OpenOptions) -> Call<Box<dyn OpenFile>> {
        let opened = Arc::new(Mutex::new(None));
        let slot = opened.clone();
        let open = job(format!("opening {path:?} {options:?}"), move || {
            let mut of_system = File::options();
            (of_system.read(options.read).write(options.write))
                .append(options.append)
                .truncate(options.truncate)
                .create(options.create)
                .create_new(options.create_new);
            *lock(&slot) = Some(of_system.open(path)?);
            Ok(())
        });
        Box::pin(async move {
            open.await?;
            wrap(lock(&opened).take())
        })
    }

    fn read(&self, path: PathBuf) -> Call<Vec<u8>> {
        job(format!("reading all of {path:?}"), move || fs::read(path))
    }

    fn write(&self, path: PathBuf, contents: Vec<u8>) -> Call<()> {
        let sum = checked(&contents, 0) as u16;
        job(format!("writing {path:?}, checksum {sum:04x}"), move || {
            fs::write(path, contents)
        })
    }

    fn copy(&self, from: PathBuf, to: PathBuf) -> Call<u64> {
        job(format!("copying {from:?} to {to:?}"), move || {
            fs::copy(from, to)
        })
    }

    fn rename(&self, from: PathBuf, to: PathBuf) -> Call<()> {
        job(format!("renaming {from:?} to {to:?}"), move || {
            fs::rename(from, to)
        })
    }

    fn remove_file(&self, path: PathBuf) -> Call<()> {
        job(format!("removing {path:?}"), move || fs::remove_file(path))
    }

    fn metadata(&self, path: PathBuf, follows: bool) -> Call<Metadata> {
        job(format!("metadata of {path:?}"), move || {
            let of = if follows {
                fs::metadata
            } else {
                fs::symlink_metadata
            };
            of(path).map(Metadata::from)
        })
    }

    fn canonicalize(&self, path: PathBuf) -> Call<PathBuf> {
        job(format!("canonicalizing {path:?}"), move || {
            fs::canonicalize(path)
        })
    }

    fn create_dir(&self, path: PathBuf, recursive: bool) -> Call<()> {
        job(format!("creating the directory {path:?}"), move || {
            fs::DirBuilder::new().recursive(recursive).create(path)
        })
    }

    fn read_dir(&self, path: PathBuf) -> Call<Vec<DirEntry>> {
        job(format!("listing {path:?}"), move || {
            let entry = |entry: io::Result<fs::DirEntry>| {
                entry.map(|entry| DirEntry {
                    name: entry.file_name(),
                    file_type: entry.file_type().ok().map(FileType::from),
                    ino: entry.ino(),
                })
            };
            fs::read_dir(path)?
                .map(entry)
                .collect::<io::Result<Vec<_>>>()
        })
    }

    fn remove_dir(&self, path: PathBuf, recursive: bool) -> Call<()> {
        job(format!("removing the directory {path:?}"), move || {
            let remove = if recursive {
                fs::remove_dir_all
            } else {
                fs::remove_dir
            };
            remove(path)
        })
    }
}

#[derive(Debug)]
struct TapedFile(Handle<File>);

/// An open file of the program: `file` is that of a recording.
fn wrap(file: Option<File>) -> io::Result<Box<dyn OpenFile>> {
    with(None, |deck| {
        let (id, shared) = (deck.add(None), deck.shared.clone());
        let system = file.map(Arc::new);
        Ok(Box::new(TapedFile(Handle { id, shared, system })) as Box<dyn OpenFile>)
    })
}

impl TapedFile {
    /// Has a thread make a call.
    fn job<T: Kept + 'static>(
        &self,
        what: &str,
        real: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> Call<T> {
        let file = self.0.system.clone();
        job(format!("{what} of file {}", self.0.id), move || {
            real(&*file.ok_or(io::ErrorKind::NotFound)?)
        })
    }
}

impl OpenFile for TapedFile {
    fn sync(&self) -> Call<()> {
        self.job("sync", File::sync_all)
    }

    fn set_len(&self, length: u64) -> Call<()> {
        let what = format!("setting the length ({length})");
        self.job(&what, move |file| file.set_len(length))
    }

    fn metadata(&self) -> Call<Metadata> {
        self.job("metadata", |file| file.metadata().map(Metadata::from))
    }

    fn try_clone(&self) -> io::Result<Box<dyn OpenFile>> {
        let mut made = None;
        self.0
            .ask(Tag::Do, text("duplicating a file's handle"), |file| {
                made = Some(file.try_clone()?);
                Ok(())
            })?;
        wrap(made)
    }

    fn lend(&self) -> &File {
        remark("the descriptor of a file was asked for: what is done with it is not on the tape");
        self.0.system.as_deref().unwrap_or_else(|| null())
    }
}

const MAX_READ: usize = 4 << 20;

impl AsyncRead for TapedFile {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let wanted = bytes.len().min(MAX_READ);
        let buffers = &mut [IoSliceMut::new(&mut bytes[..wanted])];
        let read = self.0.fill(
            Tag::Read,
            |_| {},
            buffers,
            |mut file, buffers| Ok(Filled(file.read(&mut buffers[0])?, false)),
        );
        Poll::Ready(read.map(|read| read.0))
    }
}

impl AsyncWrite for TapedFile {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let check = checked(bytes, 0);
        Poll::Ready(
            self.0
                .write(check, bytes.len(), |mut file| file.write(bytes)),
        )
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncSeek for TapedFile {
    fn poll_seek(self: Pin<&mut Self>, _: &mut Context<'_>, to: SeekFrom) -> Poll<io::Result<u64>> {
        let what = format!("seeking in a file ({to:?})");
        let seek = |mut file: &File| file.seek(to).map(Some);
        let place = self.0.ask(Tag::Number, text(what), seek);
        Poll::Ready(place.map(Option::unwrap_or_default))
    }
}

const TYPES: [FileType; 8] = {
    use FileType::*;
    [
        Directory,
        File,
        Symlink,
        Socket,
        Fifo,
        BlockDevice,
        CharDevice,
        Other,
    ]
};

kept_as! {
    FileType: Option<usize>, |it| TYPES.iter().position(|one| one == it),
        |place| TYPES.get(place?).copied();
    // Since 1970, or before it.
    SystemTime: (bool, Duration), |it| match it.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => (true, since),
            Err(before) => (false, before.duration()),
        },
        |(is_since, time)| if is_since {
            SystemTime::UNIX_EPOCH.checked_add(time)
        } else {
            SystemTime::UNIX_EPOCH.checked_sub(time)
        };
    PathBuf: OsString, |it| it.clone().into_os_string(), |it| Some(it.into());
}

kept_fields! {
    Metadata { file_type length mode modified accessed created stat }
    Stat { dev ino nlink uid gid rdev atime mtime ctime blksize blocks attributes }
    DirEntry { name file_type ino }
}
