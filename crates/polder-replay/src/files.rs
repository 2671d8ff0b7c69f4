//! The files of a thread that records or replays. A call with a path is made by a thread, and its
//! result is on the tape when the worker gets it. Reads, writes and seeks of an open file are made
//! by the worker, so what they return is part of the poll.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirEntryExt, FileTypeExt, MetadataExt};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use futures_lite::io::{AsyncRead, AsyncSeek, AsyncWrite};
use polder::kernel::files::{
    Call, DirEntry, FileType, Files, Metadata, OpenFile, OpenOptions, Stat,
};

use crate::deck::{self, Ask, Shared, with};
use crate::kernel::{job, null};
use crate::tape::{self, Argument, Cursor, Kept, Tag, get_value, kept_fields, put_value};

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
            *deck::lock(&slot) = Some(of_system.open(path)?);
            Ok(())
        });
        Box::pin(async move {
            open.await?;
            let file = deck::lock(&opened).take();
            with(|deck| Ok(wrap(deck, file)))
        })
    }

    fn read(&self, path: PathBuf) -> Call<Vec<u8>> {
        job(format!("reading all of {path:?}"), move || fs::read(path))
    }

    fn write(&self, path: PathBuf, contents: Vec<u8>) -> Call<()> {
        let sum = tape::checked(&contents, 0) as u16;
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
            let found = if follows {
                fs::metadata(path)?
            } else {
                fs::symlink_metadata(path)?
            };
            Ok(of_system(&found))
        })
    }

    fn canonicalize(&self, path: PathBuf) -> Call<PathBuf> {
        let call = job(format!("canonicalizing {path:?}"), move || {
            Ok(fs::canonicalize(path)?.into_os_string())
        });
        Box::pin(async { Ok(call.await?.into()) })
    }

    fn create_dir(&self, path: PathBuf, recursive: bool) -> Call<()> {
        job(format!("creating the directory {path:?}"), move || {
            fs::DirBuilder::new().recursive(recursive).create(path)
        })
    }

    fn read_dir(&self, path: PathBuf) -> Call<Vec<DirEntry>> {
        job(format!("listing {path:?}"), move || {
            let entry = |entry: io::Result<fs::DirEntry>| {
                let entry = entry?;
                let file_type = entry.file_type().ok().map(type_of);
                Ok(DirEntry {
                    name: entry.file_name(),
                    file_type,
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
            if recursive {
                fs::remove_dir_all(path)
            } else {
                fs::remove_dir(path)
            }
        })
    }
}

/// An open file: `file` is `None` when it is replayed.
#[derive(Debug)]
struct TapedFile {
    id: u32,
    file: Option<Arc<File>>,
    shared: Arc<Shared>,
}

fn wrap(deck: &mut deck::Deck, file: Option<File>) -> Box<dyn OpenFile> {
    let (id, shared) = (deck.add(None), deck.shared.clone());
    Box::new(TapedFile {
        id,
        file: file.map(Arc::new),
        shared,
    })
}

impl Drop for TapedFile {
    fn drop(&mut self) {
        deck::dropped(self.id, &self.shared);
    }
}

impl TapedFile {
    /// Makes a call that the worker waits for.
    fn cross<T: Kept>(
        &self,
        tag: Tag,
        argument: Argument,
        real: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        deck::cross(&self.shared, Ask::of(self.id, tag, argument), || {
            self.file.as_deref().map_or_else(|| Err(closed()), real)
        })
    }

    /// Has a thread make a call.
    fn job<T: Kept + 'static>(
        &self,
        what: &str,
        real: impl FnOnce(&File) -> io::Result<T> + Send + 'static,
    ) -> Call<T> {
        let file = self.file.clone();
        job(format!("{what} of file {}", self.id), move || {
            file.map_or_else(|| Err(closed()), |file| real(&file))
        })
    }
}

fn closed() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl OpenFile for TapedFile {
    fn sync(&self) -> Call<()> {
        self.job("sync", File::sync_all)
    }

    fn set_len(&self, length: u64) -> Call<()> {
        self.job(&format!("setting the length ({length})"), move |file| {
            file.set_len(length)
        })
    }

    fn metadata(&self) -> Call<Metadata> {
        self.job("metadata", |file| Ok(of_system(&file.metadata()?)))
    }

    fn try_clone(&self) -> io::Result<Box<dyn OpenFile>> {
        let mut made = None;
        self.cross(Tag::FileClone, Argument::None, |file| {
            made = Some(file.try_clone()?);
            Ok(())
        })?;
        with(|deck| Ok(wrap(deck, made)))
    }

    fn lend(&self) -> &File {
        deck::look(|deck| {
            deck.remark(
                "the descriptor of a file was asked for: what is done with it is not on the tape",
            )
        });
        self.file.as_deref().unwrap_or_else(|| null())
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
        let read = self.cross(Tag::FileRead, Argument::None, |mut file| {
            let mut read = vec![0; wanted];
            let length = file.read(&mut read)?;
            read.truncate(length);
            Ok(read)
        });
        Poll::Ready(read.and_then(|read| {
            let to = bytes.get_mut(..read.len());
            let to = to.ok_or_else(|| {
                tape::bad("the program's buffer is smaller than it was when this was recorded")
            })?;
            to.copy_from_slice(&read);
            Ok(read.len())
        }))
    }
}

impl AsyncWrite for TapedFile {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let argument = Argument::of_bytes(bytes, 0);
        let left = self.cross(Tag::FileWrite, argument, |mut file| {
            Ok(bytes.len() - file.write(bytes)?)
        });
        Poll::Ready(left.and_then(|left| tape::written(bytes.len(), left)))
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
        Poll::Ready(self.cross(
            Tag::FileSeek,
            Argument::Text(format!("{to:?}")),
            |mut file| file.seek(to),
        ))
    }
}

type Is = fn(&fs::FileType) -> bool;

const TYPES: [(FileType, Is); 8] = [
    (FileType::Directory, fs::FileType::is_dir),
    (FileType::File, fs::FileType::is_file),
    (FileType::Symlink, fs::FileType::is_symlink),
    (FileType::Socket, FileTypeExt::is_socket),
    (FileType::Fifo, FileTypeExt::is_fifo),
    (FileType::BlockDevice, FileTypeExt::is_block_device),
    (FileType::CharDevice, FileTypeExt::is_char_device),
    (FileType::Other, |_| true),
];

fn type_of(found: fs::FileType) -> FileType {
    let is = TYPES.iter().find(|(_, is)| is(&found));
    is.map_or(FileType::Other, |(file_type, _)| *file_type)
}

fn of_system(found: &fs::Metadata) -> Metadata {
    Metadata {
        file_type: type_of(found.file_type()),
        length: found.len(),
        mode: found.mode(),
        modified: found.modified().ok(),
        accessed: found.accessed().ok(),
        created: found.created().ok(),
        stat: Stat {
            dev: found.dev(),
            ino: found.ino(),
            nlink: found.nlink(),
            uid: found.uid(),
            gid: found.gid(),
            rdev: found.rdev(),
            atime: (found.atime(), found.atime_nsec()),
            mtime: (found.mtime(), found.mtime_nsec()),
            ctime: (found.ctime(), found.ctime_nsec()),
            blksize: found.blksize(),
            blocks: found.blocks(),
            attributes: 0,
        },
    }
}

impl Kept for FileType {
    fn head(&self) -> u64 {
        let place = TYPES.iter().position(|(one, _)| one == self);
        place.unwrap_or(TYPES.len() - 1) as u64
    }

    fn get(head: u64, _: &mut Cursor<'_>) -> Option<FileType> {
        let found = TYPES.get(usize::try_from(head).ok()?)?;
        Some(found.0)
    }
}

/// Since 1970, or before it.
impl Kept for SystemTime {
    fn head(&self) -> u64 {
        u64::from(*self < SystemTime::UNIX_EPOCH)
    }

    fn put(&self, to: &mut Vec<u8>) {
        let since = self.duration_since(SystemTime::UNIX_EPOCH);
        put_value(to, &since.unwrap_or_else(|before| before.duration()));
    }

    fn get(head: u64, from: &mut Cursor<'_>) -> Option<SystemTime> {
        let time: Duration = get_value(from)?;
        match head {
            0 => SystemTime::UNIX_EPOCH.checked_add(time),
            _ => SystemTime::UNIX_EPOCH.checked_sub(time),
        }
    }
}

kept_fields! {
    Metadata { file_type length mode modified accessed created stat }
    Stat { dev ino nlink uid gid rdev atime mtime ctime blksize blocks attributes }
    DirEntry { name file_type ino }
}
