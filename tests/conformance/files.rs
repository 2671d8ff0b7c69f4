//! The promises of `polder::fs`, on the system's disk and on a simulated one: what has completed is
//! done, and a dropped future neither loses nor doubles a byte.

use std::io::IoSlice;
use std::path::{Path, PathBuf};

use polder::fs::{self, File, OpenOptions};
use polder::future::poll_once;
use polder::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt, ErrorKind, SeekFrom};
use polder::stream::StreamExt;

#[cfg(target_os = "linux")]
use crate::support::{LIMIT, within};
use crate::support::{in_every_kernel_runtime, in_every_runtime, is_in_world};

/// An empty directory: of the system, removed on drop, or the root of a world's disk.
struct Folder(Option<tempfile::TempDir>);

impl Folder {
    fn new() -> Folder {
        let of_system = || tempfile::tempdir().expect("a directory can be made");
        Folder((!is_in_world()).then(of_system))
    }

    fn at(&self, name: &str) -> PathBuf {
        match &self.0 {
            Some(folder) => folder.path().join(name),
            None => PathBuf::from("/").join(name),
        }
    }
}

/// Bytes of which no two parts are alike.
fn bytes(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at % 251) as u8 ^ (at >> 8) as u8)
        .collect()
}

/// Whether threads make all calls.
fn uses_threads() -> bool {
    !cfg!(target_os = "linux") || std::env::var_os("POLDER_FS").is_some_and(|way| way == "pool")
}

/// Creates a file with these bytes, and opens it for reading and writing.
async fn file_of(folder: &Folder, bytes: &[u8]) -> File {
    fs::write(folder.at("file"), bytes).await.unwrap();
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    options.open(folder.at("file")).await.unwrap()
}

/// All the rules of this module.
#[cfg(target_os = "linux")]
#[test]
fn the_same_holds_if_threads_make_all_calls() {
    if std::env::var_os("POLDER_FS").is_some() {
        return;
    }
    within(3 * LIMIT, "on threads", || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["files::", "--skip", "if_threads_make_all_calls"]);
        command.env("POLDER_FS", "pool").env_remove("POLDER_RULES");
        let output = command.output().expect("this program starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
    });
}

#[test]
fn rule_79_completed_write_seen_by_others() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let mut file = File::create(folder.at("file")).await.unwrap();
        let all = bytes(5_000);
        for (nth, piece) in all.chunks(1_000).enumerate() {
            file.write_all(piece).await.unwrap();
            let length = 1_000 * (nth + 1);
            assert_eq!(fs::read(folder.at("file")).await.unwrap(), all[..length]);
        }
        drop(file);
        assert_eq!(fs::read(folder.at("file")).await.unwrap(), all);
    });
}

#[test]
fn rule_79_dropped_read_loses_nothing() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let all = bytes(20_000);
        let mut file = file_of(&folder, &all).await;
        let mut dropped = 0;
        // The thread may be so quick that all reads are ready at once.
        for _ in 0..100 {
            file.seek(SeekFrom::Start(0)).await.unwrap();
            dropped += read_with_drops(&mut file, &all).await;
            if dropped > 0 {
                break;
            }
        }
        let may_wait = is_in_world() || uses_threads();
        assert!(dropped > 0 || !may_wait, "every read was ready at once");
    });
}

/// Reads a file, and compares what it has read. Returns how many futures it has dropped.
async fn read_with_drops(file: &mut File, all: &[u8]) -> usize {
    let (mut read, mut dropped) = (Vec::new(), 0);
    let mut buffer = [0; 700];
    for size in (1..700).step_by(7).cycle() {
        let length = match poll_once(file.read(&mut buffer[..size])).await {
            Some(length) => length.unwrap(),
            None => {
                dropped += 1;
                // Shorter and longer than the dropped one.
                file.read(&mut buffer[..700 - size]).await.unwrap()
            }
        };
        read.extend_from_slice(&buffer[..length]);
        if length == 0 {
            break;
        }
    }
    assert!(read == all, "{} of {} bytes", read.len(), all.len());
    dropped
}

#[test]
fn rule_79_dropped_write_repeated_once() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let all = bytes(9_000);
        let mut file = file_of(&folder, b"").await;
        let mut rest = &all[..];
        while !rest.is_empty() {
            let piece = &rest[..rest.len().min(1 + rest.len() % 311)];
            let written = match poll_once(file.write(piece)).await {
                Some(written) => written.unwrap(),
                None => {
                    // With more bytes than before.
                    let most = rest.len().min(2 * piece.len());
                    file.write(&rest[..most]).await.unwrap()
                }
            };
            rest = &rest[written..];
        }
        file.flush().await.unwrap();
        assert!(fs::read(folder.at("file")).await.unwrap() == all);
    });
}

/// Rule 79: a write after a dropped one comes behind it or in its place.
#[test]
fn rule_79_write_after_dropped_write() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let mut file = file_of(&folder, b"").await;
        let dropped = poll_once(file.write(b"first ")).await;
        assert!(dropped.is_none_or(|written| written.unwrap() == 6));
        file.write_all(b"second").await.unwrap();
        let text = fs::read_to_string(folder.at("file")).await.unwrap();
        assert!(text == "first second" || text == "second", "{text}");
    });
}

/// Rule 79: after a dropped read the position is the one that the program has seen.
#[test]
fn rule_79_dropped_read_keeps_position() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let all = bytes(1_000);
        let mut file = file_of(&folder, &all).await;
        let mut buffer = [0; 100];
        let mut seen = 0;
        for _ in 0..3 {
            let read = poll_once(file.read(&mut buffer)).await;
            seen += read.map_or(0, |length| length.unwrap() as u64);
            assert_eq!(file.seek(SeekFrom::Current(0)).await.unwrap(), seen);
        }
        for _ in 0..3 {
            let read = poll_once(file.read(&mut buffer)).await;
            seen += read.map_or(0, |length| length.unwrap() as u64);
            file.write_all(b"X").await.unwrap();
            let now = fs::read(folder.at("file")).await.unwrap();
            assert_eq!(now[seen as usize], b'X', "after {seen} bytes");
            seen += 1;
        }
        let read = poll_once(file.read(&mut buffer)).await;
        seen += read.map_or(0, |length| length.unwrap() as u64);
        let dropped = poll_once(file.seek(SeekFrom::Start(seen))).await;
        assert!(dropped.is_none_or(|at| at.unwrap() == seen));
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).await.unwrap();
        assert!(
            rest == all[seen as usize..],
            "{} bytes after {seen}",
            rest.len()
        );
    });
}

/// More than one operation moves at once.
#[test]
fn a_large_file_is_written_and_read_byte_for_byte() {
    in_every_runtime(|_| async {
        const LENGTH: usize = 5 << 20;
        let folder = Folder::new();
        let all = bytes(LENGTH);
        let mut file = file_of(&folder, b"").await;
        file.write_all(&all).await.unwrap();
        file.sync_data().await.unwrap();
        file.seek(SeekFrom::Start(0)).await.unwrap();
        let mut read = Vec::new();
        file.read_to_end(&mut read).await.unwrap();
        assert!(read == all, "{} bytes", read.len());
        file.set_len(10).await.unwrap();
        assert_eq!(file.metadata().await.unwrap().len(), 10);
        assert_eq!(file.seek(SeekFrom::End(0)).await.unwrap(), 10);
    });
}

#[test]
fn a_tree_is_made_listed_copied_and_removed() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        fs::create_dir_all(folder.at("a/b/c")).await.unwrap();
        fs::create_dir_all(folder.at("a/b")).await.unwrap();
        for path in ["a/one", "a/b/two", "a/b/c/three"] {
            fs::write(folder.at(path), path).await.unwrap();
        }
        let copied = fs::copy(folder.at("a/one"), folder.at("a/four")).await;
        assert_eq!(copied.unwrap(), 5);
        assert_eq!(
            fs::read_to_string(folder.at("a/four")).await.unwrap(),
            "a/one"
        );
        let entries = fs::read_dir(folder.at("a")).await.unwrap();
        let mut found = Vec::new();
        for entry in entries.try_collect::<_, _, Vec<_>>().await.unwrap() {
            let name = entry.file_name().into_string().unwrap();
            let metadata = entry.metadata().await.unwrap();
            assert_eq!(metadata.file_type(), entry.file_type().await.unwrap());
            found.push((name, metadata.is_dir()));
        }
        found.sort();
        let expected = [("b", true), ("four", false), ("one", false)];
        assert_eq!(
            found,
            expected.map(|(name, is_dir)| (name.to_owned(), is_dir))
        );
        let canonical = fs::canonicalize(folder.at("a/b/../one")).await.unwrap();
        assert_eq!(fs::read(canonical).await.unwrap(), b"a/one");
        let error = fs::remove_dir(folder.at("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DirectoryNotEmpty);
        fs::remove_dir_all(folder.at("a")).await.unwrap();
        let gone = fs::metadata(folder.at("a")).await.unwrap_err();
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        let none = fs::remove_dir_all(folder.at("a")).await.unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
    });
}

/// As the standard library does, which removes the contents of the target before it reads.
#[cfg(target_os = "linux")]
#[test]
fn a_file_that_is_copied_to_itself_is_empty() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        file_of(&folder, b"text").await;
        let path = folder.at("file");
        assert_eq!(fs::copy(&path, &path).await.unwrap(), 0);
        assert_eq!(fs::read(&path).await.unwrap(), b"");
        let refused = fs::copy(folder.at(""), folder.at("new")).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
        let none = fs::metadata(folder.at("new")).await.unwrap_err();
        assert_eq!(none.kind(), ErrorKind::NotFound);
    });
}

/// Links and permissions are the system's or unsupported.
#[cfg(unix)]
#[test]
fn links_and_permissions_or_unsupported() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let file = file_of(&folder, b"text").await;
        let (path, link) = (folder.at("file"), folder.at("link"));
        let permissions = fs::Permissions::from_mode(0o400);
        let results = [
            fs::unix::symlink("file", &link).await,
            fs::hard_link(&path, folder.at("other")).await,
            fs::set_permissions(&path, permissions.clone()).await,
            file.set_permissions(permissions).await,
        ];
        if is_in_world() {
            for result in results {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::Unsupported);
            }
            return;
        }
        for result in results {
            result.unwrap();
        }
        assert_eq!(fs::read_link(&link).await.unwrap(), PathBuf::from("file"));
        assert!(fs::symlink_metadata(&link).await.unwrap().is_symlink());
        let metadata = fs::metadata(&link).await.unwrap();
        assert!(metadata.is_file() && metadata.permissions().readonly());
        assert!(metadata.modified().is_ok());
        assert_eq!(fs::read(folder.at("other")).await.unwrap(), b"text");
    });
}

/// Those of the file, by whatever way: of the system, the standard library's.
#[cfg(unix)]
#[test]
fn metadata_have_the_numbers_of_stat() {
    use fs::unix::{DirEntryExt, MetadataExt};

    type Numbers = ([u64; 7], [u32; 3], [i64; 6]);
    fn numbers(of: &impl MetadataExt) -> Numbers {
        (
            [
                of.dev(),
                of.ino(),
                of.nlink(),
                of.rdev(),
                of.size(),
                of.blksize(),
                of.blocks(),
            ],
            [of.mode(), of.uid(), of.gid()],
            [
                of.atime(),
                of.atime_nsec(),
                of.mtime(),
                of.mtime_nsec(),
                of.ctime(),
                of.ctime_nsec(),
            ],
        )
    }

    in_every_runtime(|_| async {
        let folder = Folder::new();
        let file = file_of(&folder, &bytes(5_000)).await;
        let path = folder.at("file");
        let found = fs::metadata(&path).await.unwrap();
        assert_eq!(numbers(&found), numbers(&file.metadata().await.unwrap()));
        if !is_in_world() {
            assert_eq!(numbers(&found), numbers(&std::fs::metadata(&path).unwrap()));
            let null = fs::metadata("/dev/null").await.unwrap();
            let expected = std::fs::metadata("/dev/null").unwrap();
            assert_eq!(null.rdev(), expected.rdev());
        }
        assert_eq!((found.nlink(), found.size()), (1, 5_000));
        assert_eq!(found.mode() & 0o170_000, 0o100_000);
        assert_eq!(found.mode(), found.permissions().mode());
        let dir = fs::metadata(folder.at("")).await.unwrap();
        assert_eq!(dir.mode() & 0o170_000, 0o040_000);
        assert_eq!(dir.dev(), found.dev());
        assert!(dir.nlink() > 0 && dir.ino() != found.ino());

        fs::write(folder.at("other"), "").await.unwrap();
        let mut entries = fs::read_dir(folder.at("")).await.unwrap();
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            assert_eq!(entry.ino(), entry.metadata().await.unwrap().ino());
            assert_eq!(entry.ino() == found.ino(), entry.file_name() == "file");
        }
        fs::rename(&path, folder.at("new")).await.unwrap();
        let renamed = fs::symlink_metadata(folder.at("new")).await.unwrap();
        assert_eq!((renamed.ino(), renamed.nlink()), (found.ino(), 1));
        fs::rename(folder.at("other"), folder.at("new"))
            .await
            .unwrap();
        let replaced = file.metadata().await.unwrap();
        assert_eq!((replaced.ino(), replaced.nlink()), (found.ino(), 0));
    });
}

/// A file type tells pipes sockets and devices apart.
#[cfg(unix)]
#[test]
fn file_type_of_pipes_sockets_devices() {
    use fs::unix::FileTypeExt;

    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        let socket = std::os::unix::net::UnixListener::bind(folder.at("socket"));
        fs::create_dir(folder.at("dir")).await.unwrap();
        fs::write(folder.at("file"), "").await.unwrap();
        // Apple's systems have no such call of rustix.
        #[cfg(target_os = "linux")]
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.at("pipe"), rustix::fs::Mode::RWXU).unwrap();
        let mut entries = fs::read_dir(folder.at("")).await.unwrap();
        while let Some(entry) = entries.next().await {
            let entry = entry.unwrap();
            let file_type = entry.file_type().await.unwrap();
            let is = [
                file_type.is_dir(),
                file_type.is_file(),
                file_type.is_socket(),
                file_type.is_fifo(),
                file_type.is_char_device() || file_type.is_block_device(),
            ];
            let name = entry.file_name();
            let expected = ["dir", "file", "socket", "pipe"].map(|it| name == it);
            assert_eq!(is, [&expected[..], &[false]].concat()[..], "{name:?}");
        }
        drop(socket.unwrap());
        let null = fs::metadata("/dev/null").await.unwrap().file_type();
        assert!(null.is_char_device() && !null.is_block_device() && !null.is_file());
    });
}

/// Metadata have the attributes and times of Windows.
#[cfg(windows)]
#[test]
fn windows_metadata_attributes_and_times() {
    use std::os::windows::fs::MetadataExt;

    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        fs::write(folder.at("file"), "text").await.unwrap();
        for path in [folder.at("file"), folder.at("")] {
            let found = fs::metadata(&path).await.unwrap();
            let expected = std::fs::metadata(&path).unwrap();
            assert_eq!(found.file_attributes(), expected.file_attributes());
            assert_eq!(found.creation_time(), expected.creation_time());
            assert_eq!(found.last_write_time(), expected.last_write_time());
            assert_eq!(found.file_size(), expected.file_size());
            // The directory may have been read since.
            assert!(found.last_access_time() <= expected.last_access_time());
        }
    });
}

/// Options and permissions have the traits of Unix.
///
/// The standard library's traits, by whose names programs know these methods.
#[cfg(unix)]
#[test]
fn unix_option_and_permission_traits() {
    use fs::unix::{DirBuilderExt, OpenOptionsExt, PermissionsExt};

    fn private(options: &mut impl OpenOptionsExt) {
        options.mode(0o600).custom_flags(libc::O_CLOEXEC);
    }
    fn closed(builder: &mut impl DirBuilderExt) {
        builder.mode(0o700);
    }
    fn mode_of(mut permissions: impl PermissionsExt) -> u32 {
        permissions.set_mode(permissions.mode() & 0o777);
        permissions.mode()
    }
    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        let (mut options, mut builder) = (OpenOptions::new(), fs::DirBuilder::new());
        private(options.write(true).create(true));
        closed(&mut builder);
        options.open(folder.at("file")).await.unwrap();
        builder.create(folder.at("dir")).await.unwrap();
        for (name, mode) in [("file", 0o600), ("dir", 0o700)] {
            let found = fs::metadata(folder.at(name)).await.unwrap();
            assert_eq!(mode_of(found.permissions()), mode);
        }
        let permissions: fs::Permissions = PermissionsExt::from_mode(0o400);
        assert!(permissions.readonly());
    });
}

#[test]
fn a_cloned_file_has_one_position_with_the_other() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let all = bytes(1_000);
        let mut file = file_of(&folder, &all).await;
        let mut other = file.try_clone().await.unwrap();
        let mut piece = [0; 100];
        for start in (0..1_000).step_by(200) {
            file.read_exact(&mut piece).await.unwrap();
            assert_eq!(piece, all[start..start + 100]);
            other.read_exact(&mut piece).await.unwrap();
            assert_eq!(piece, all[start + 100..start + 200]);
        }
        file.seek(SeekFrom::Start(10)).await.unwrap();
        drop(file);
        other.write_all(b"X").await.unwrap();
        assert_eq!(fs::read(folder.at("file")).await.unwrap()[10], b'X');
        assert_eq!(other.seek(SeekFrom::Current(0)).await.unwrap(), 11);
    });
}

#[cfg(unix)]
#[test]
fn a_lent_descriptor_is_the_files() {
    use fs::unix::MetadataExt;
    use std::os::fd::{AsFd, AsRawFd, OwnedFd};

    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        let mut file = file_of(&folder, b"text").await;
        assert_eq!(file.as_fd().as_raw_fd(), file.as_raw_fd());
        let copy: OwnedFd = file.as_fd().try_clone_to_owned().unwrap();
        let mut other = File::from(copy);
        let one = file.metadata().await.unwrap();
        let two = other.metadata().await.unwrap();
        assert_eq!((one.dev(), one.ino()), (two.dev(), two.ino()));
        file.seek(SeekFrom::Start(2)).await.unwrap();
        let mut rest = String::new();
        other.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "xt");
    });
}

/// Files are those of the kernel that the thread has.
///
/// By the seam that simulated worlds use, which needs nothing private.
#[cfg(feature = "kernel")]
#[test]
fn files_of_threads_kernel() {
    use polder::kernel::files::{Call, DirEntry, Files, Metadata, OpenFile};
    use polder::kernel::{self, Kernel, files};
    use std::io;

    /// Has one file, which is named as it is.
    struct Echo;

    fn ready<T: Send + 'static>(result: io::Result<T>) -> Call<T> {
        Box::pin(std::future::ready(result))
    }

    fn none<T: Send + 'static>() -> Call<T> {
        ready(Err(ErrorKind::ReadOnlyFilesystem.into()))
    }

    impl Kernel for Echo {
        fn files(&self) -> Option<&'static dyn Files> {
            Some(&Echo)
        }
    }

    impl Files for Echo {
        fn open(&self, _: PathBuf, _: files::OpenOptions) -> Call<Box<dyn OpenFile>> {
            none()
        }

        fn read(&self, path: PathBuf) -> Call<Vec<u8>> {
            ready(Ok(path.into_os_string().into_encoded_bytes()))
        }

        fn write(&self, _: PathBuf, _: Vec<u8>) -> Call<()> {
            none()
        }

        fn copy(&self, _: PathBuf, _: PathBuf) -> Call<u64> {
            none()
        }

        fn rename(&self, _: PathBuf, _: PathBuf) -> Call<()> {
            none()
        }

        fn remove_file(&self, _: PathBuf) -> Call<()> {
            none()
        }

        fn metadata(&self, path: PathBuf, follows: bool) -> Call<Metadata> {
            ready(Ok(Metadata {
                file_type: if follows {
                    files::FileType::Fifo
                } else {
                    files::FileType::Symlink
                },
                length: path.as_os_str().len() as u64,
                mode: 0o444,
                modified: None,
                accessed: None,
                created: Some(std::time::SystemTime::UNIX_EPOCH),
                stat: files::Stat::default(),
            }))
        }

        fn canonicalize(&self, path: PathBuf) -> Call<PathBuf> {
            ready(Ok(path))
        }

        fn create_dir(&self, _: PathBuf, _: bool) -> Call<()> {
            none()
        }

        fn read_dir(&self, path: PathBuf) -> Call<Vec<DirEntry>> {
            let entry = DirEntry {
                name: path.into(),
                file_type: None,
                ino: 7,
            };
            ready(Ok(vec![entry]))
        }

        fn remove_dir(&self, _: PathBuf, _: bool) -> Call<()> {
            none()
        }
    }

    let _installed = kernel::install(&Echo);
    polder::block_on(async {
        assert_eq!(fs::read("Cargo.toml").await?, b"Cargo.toml");
        let metadata = fs::metadata("four").await?;
        assert!(!metadata.is_file() && metadata.len() == 4);
        assert!(metadata.permissions().readonly() && metadata.created().is_ok());
        let unknown = metadata.modified().unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::Unsupported);
        let mut entries = fs::read_dir("a").await?;
        let entry = entries.next().await.unwrap()?;
        assert_eq!(entry.path(), Path::new("a/a"));
        assert!(entry.file_type().await?.is_symlink());
        assert!(entries.next().await.is_none());
        let error = File::create("b").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem);
        std::io::Result::Ok(())
    })
    .unwrap();
}

/// A file is taken over and given back at the position that was seen.
#[test]
fn conversion_keeps_position_seen() {
    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        std::fs::write(folder.at("file"), bytes(1_000)).unwrap();
        let mut file = File::from(std::fs::File::open(folder.at("file")).unwrap());
        let mut buffer = [0; 300];
        file.read_exact(&mut buffer).await.unwrap();
        let read = poll_once(file.read(&mut buffer)).await;
        let seen = 300 + read.map_or(0, |length| length.unwrap() as u64);
        let mut file = file.into_std().await.unwrap();
        assert_eq!(std::io::Seek::stream_position(&mut file).unwrap(), seen);
    });
}

/// The error of a dropped write is returned by the next operation.
///
/// Writes to this device fail.
#[cfg(target_os = "linux")]
#[test]
fn dropped_writes_error_comes_next() {
    in_every_kernel_runtime(|_| async {
        let open = || OpenOptions::new().write(true).open("/dev/full");
        let full = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::StorageFull);
        let mut file = open().await.unwrap();
        full(file.write(b"bytes").await.unwrap_err());
        file.flush().await.expect("it was returned");
        match poll_once(file.write(b"bytes")).await {
            Some(written) => full(written.unwrap_err()),
            None => full(file.flush().await.unwrap_err()),
        }
        match poll_once(file.write(b"bytes")).await {
            Some(written) => full(written.unwrap_err()),
            None => full(file.write(b"others").await.unwrap_err()),
        }
        match poll_once(file.write(b"bytes")).await {
            Some(written) => full(written.unwrap_err()),
            None => full(file.into_std().await.unwrap_err()),
        }
    });
}

/// A flush ends what belongs to a dropped write: what comes behind it is a write of its own.
#[test]
fn the_same_bytes_are_written_again_after_a_flush() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let mut file = file_of(&folder, b"").await;
        let dropped = poll_once(file.write(b"tick")).await;
        file.flush().await.unwrap();
        let before = fs::read(folder.at("file")).await.unwrap().len();
        // Where it was dropped before it was made, as in a world, it is not made later.
        assert!(before == 4 || before == 0 && dropped.is_none(), "{before}");
        for count in 1..=2 {
            file.write_all(b"tick").await.unwrap();
            let length = fs::read(folder.at("file")).await.unwrap().len();
            assert_eq!(length, before + 4 * count);
        }
    });
}

/// A file that only claims to have a position keeps the bytes of a dropped read.
///
/// lseek(2) of an eventfd succeeds, and does nothing.
#[cfg(target_os = "linux")]
#[test]
fn dropped_read_of_false_seek_keeps_bytes() {
    use rustix::event::{EventfdFlags, eventfd};

    in_every_kernel_runtime(|_| async {
        let event = std::fs::File::from(eventfd(0, EventfdFlags::empty()).unwrap());
        let other = event.try_clone().unwrap();
        let mut file = File::from(event);
        let mut count = [0; 8];
        assert!(poll_once(file.read(&mut count)).await.is_none());
        std::io::Write::write_all(&mut &other, &5_u64.to_ne_bytes()).unwrap();
        file.write_all(&1_u64.to_ne_bytes()).await.unwrap();
        for expected in [5, 1] {
            assert_eq!(file.read(&mut count).await.unwrap(), count.len());
            assert_eq!(u64::from_ne_bytes(count), expected);
        }
    });
}

/// A pipe is written and flushed though a read of it was dropped.
///
/// What has no position keeps the bytes of a dropped read, and can be written and closed meanwhile.
#[cfg(target_os = "linux")]
#[test]
fn pipe_usable_after_dropped_read() {
    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        let path = folder.at("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).open(&path)
        };
        let (mut file, mut other) = (open().await.unwrap(), open().await.unwrap());
        let mut byte = [0];
        assert!(poll_once(file.read(&mut byte)).await.is_none());
        file.flush().await.unwrap();
        other.write_all(b"1").await.unwrap();
        file.write_all(b"23").await.unwrap();
        let mut bytes = [0; 3];
        file.read_exact(&mut bytes).await.unwrap();
        assert_eq!(&bytes, b"123");
        let more = poll_once(file.read(&mut byte)).await;
        assert!(more.is_none(), "{more:?}");
        file.close().await.unwrap();
        // Its thread returns.
        other.write_all(b"4").await.unwrap();
    });
}

/// As open(2) does, which a call that does not wait would not.
#[cfg(target_os = "linux")]
#[test]
fn a_pipe_that_is_opened_waits_for_its_other_end() {
    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        let path = folder.at("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        // The file system is known after this.
        fs::write(folder.at("file"), "text").await.unwrap();
        for _ in 0..2 {
            fs::read(folder.at("file")).await.unwrap();
        }
        let mut read = std::pin::pin!(fs::read(&path));
        assert!(poll_once(&mut read).await.is_none());
        let mut writer = OpenOptions::new().write(true).open(&path).await.unwrap();
        assert!(poll_once(&mut read).await.is_none());
        writer.write_all(b"through").await.unwrap();
        drop(writer);
        assert_eq!(read.await.unwrap(), b"through");

        let mut open = std::pin::pin!(File::open(&path));
        assert!(poll_once(&mut open).await.is_none());
        let writer = OpenOptions::new().write(true).open(&path).await.unwrap();
        let mut reader = open.await.unwrap();
        drop(writer);
        assert_eq!(reader.read(&mut [0]).await.unwrap(), 0);
    });
}

/// Files are used where the calls that do not wait are refused.
///
/// A kernel that lacks a call, and a sandbox that refuses it: threads make the calls.
#[cfg(target_os = "linux")]
#[test]
fn files_work_without_nowait_calls() {
    const TEST: &str = "files::files_work_without_nowait_calls";
    const VARIABLE: &str = "POLDER_REFUSED_CALL";
    let calls = [
        ("openat2", libc::SYS_openat2),
        ("preadv2", libc::SYS_preadv2),
    ];
    let errnos = [libc::ENOSYS, libc::EPERM];
    if let Ok(refused) = std::env::var(VARIABLE) {
        let (name, errno) = refused.split_once(' ').unwrap();
        let (_, call) = calls.into_iter().find(|(it, _)| *it == name).unwrap();
        crate::support::refuse(&[call], errno.parse().unwrap());
        let folder = Folder::new();
        let all = bytes(9_000);
        polder::block_on(async {
            for _ in 0..3 {
                let mut file = file_of(&folder, &all).await;
                assert!(fs::read(folder.at("file")).await.unwrap() == all);
                let mut read = Vec::new();
                file.read_to_end(&mut read).await.unwrap();
                assert!(read == all, "{} bytes", read.len());
                assert_eq!(file.seek(SeekFrom::Start(9)).await.unwrap(), 9);
                file.write_all(&all[9..]).await.unwrap();
                let length = fs::metadata(folder.at("file")).await.unwrap().len();
                assert_eq!(length, 9_000);
                let mut file = File::open(folder.at("file")).await.unwrap();
                file.read_exact(&mut [0; 9]).await.unwrap();
            }
        });
        return;
    }
    for (name, _) in calls {
        for errno in errnos {
            let mut command = crate::again::again(TEST);
            let child = command.env(VARIABLE, format!("{name} {errno}")).spawn();
            let child = child.expect("the test starts again");
            let output = crate::again::ended(child, &format!("without {name}"), LIMIT);
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(
                output.status.success() && text.contains("1 passed"),
                "without {name} ({errno}): {text}"
            );
        }
    }
}

/// A write of which the kernel takes a part says how much.
///
/// The limit of a file's length is in the middle of a write: the kernel writes a part of it, and
/// refuses the rest.
#[cfg(target_os = "linux")]
#[test]
fn partial_write_reports_count() {
    crate::child::in_children(|_| {
        const LIMIT: usize = 5_000;
        // SAFETY: the signal of that limit is ignored from now on; no memory is touched.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        crate::child::limit(rustix::process::Resource::Fsize, LIMIT as u64);
        let memory = tempfile::tempdir_in("/dev/shm").ok();
        for folder in [
            Folder::new(),
            memory.map_or_else(Folder::new, |it| Folder(Some(it))),
        ] {
            polder::block_on(async {
                let all = bytes(9_000);
                let mut file = file_of(&folder, b"").await;
                assert_eq!(file.write(&all[..3_000]).await.unwrap(), 3_000);
                assert_eq!(file.write(&all[3_000..]).await.unwrap(), LIMIT - 3_000);
                let too_large = |error: std::io::Error| {
                    assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{error}");
                };
                too_large(file.write(&all[LIMIT..]).await.unwrap_err());
                file.flush().await.expect("it was returned");
                assert!(fs::read(folder.at("file")).await.unwrap() == all[..LIMIT]);

                file.seek(SeekFrom::Start(0)).await.unwrap();
                let slices = all.chunks(1_000).map(IoSlice::new).collect::<Vec<_>>();
                assert_eq!(file.write_vectored(&slices).await.unwrap(), LIMIT);
                too_large(file.write_all(&all).await.unwrap_err());
                too_large(fs::write(folder.at("file"), &all).await.unwrap_err());
                assert!(fs::read(folder.at("file")).await.unwrap() == all[..LIMIT]);
            });
        }
    });
}

/// A file of which parts are in memory is read byte for byte.
///
/// Pages that the kernel has dropped are read again by a thread, and those around them at once.
#[cfg(target_os = "linux")]
#[test]
fn partly_cached_file_read_exactly() {
    use rustix::fs::{Advice, fadvise};
    use std::num::NonZeroU64;

    in_every_kernel_runtime(|_| async {
        const LENGTH: usize = 100_000;
        let folder = Folder::new();
        let all = bytes(LENGTH);
        let mut file = file_of(&folder, &all).await;
        let other = std::fs::File::open(folder.at("file")).unwrap();
        for start in (0..LENGTH as u64).step_by(16 << 10) {
            file.sync_all().await.unwrap();
            let forget = || fadvise(&other, start, NonZeroU64::new(8 << 10), Advice::DontNeed);
            forget().unwrap();
            assert!(fs::read(folder.at("file")).await.unwrap() == all);
            forget().unwrap();
            file.seek(SeekFrom::Start(0)).await.unwrap();
            let mut read = Vec::new();
            file.read_to_end(&mut read).await.unwrap();
            assert!(read == all, "{} bytes", read.len());
        }
    });
}

/// An opened file has the flags of the standard library's.
///
/// The flag that opening without waiting takes is not left.
#[cfg(target_os = "linux")]
#[test]
fn open_flags_match_std() {
    in_every_kernel_runtime(|_| async {
        let folder = Folder::new();
        fs::write(folder.at("file"), "text").await.unwrap();
        let flags = |file: &std::fs::File| rustix::fs::fcntl_getfl(file).unwrap();
        let expected = flags(&std::fs::File::open(folder.at("file")).unwrap());
        for _ in 0..3 {
            let file = File::open(folder.at("file")).await.unwrap();
            let file = file.into_std().await.unwrap();
            assert_eq!(flags(&file), expected);
            let closes = rustix::io::fcntl_getfd(&file).unwrap();
            assert!(closes.contains(rustix::io::FdFlags::CLOEXEC));
        }
    });
}

/// The end that a dropped read has found is the next read's, whatever is done in between; but a
/// pipe whose bytes would be lost is not given away.
#[cfg(target_os = "linux")]
#[test]
fn dropped_read_of_pipe_keeps_bytes() {
    in_every_kernel_runtime(|_| async {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut file = File::from(std::fs::File::from(reader));
        let mut byte = [0];
        assert!(poll_once(file.read(&mut byte)).await.is_none());
        drop(writer);
        file.write(b"x")
            .await
            .expect_err("it is the end for reading");
        assert_eq!(file.read(&mut byte).await.unwrap(), 0);

        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut file = File::from(std::fs::File::from(reader));
        assert!(poll_once(file.read(&mut byte)).await.is_none());
        rustix::io::write(&writer, b"x").unwrap();
        let error = file.into_std().await.unwrap_err();
        assert!(error.to_string().contains("read them first"), "{error}");
    });
}

/// The thread of the pool waits for the pipe: [`crate::unblock`] has the rest.
#[cfg(unix)]
#[test]
fn a_pipe_that_does_not_block_is_waited_for() {
    in_every_kernel_runtime(|_| async {
        let (reader, writer) = crate::unblock::pipe();
        let (mut reader, mut writer) = (File::from(reader), File::from(writer));
        let all = bytes(300_000);
        let expected = all.clone();
        let reads = polder::spawn(async move {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).await.unwrap();
            assert!(
                read == expected,
                "{} of {} bytes",
                read.len(),
                expected.len()
            );
        });
        writer.write_all(&all).await.unwrap();
        drop(writer);
        reads.await;
    });
}

#[test]
fn slices_are_written_in_one_call() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let mut file = file_of(&folder, b"").await;
        let slices = ["", "one, ", "two, ", "three"].map(|text| IoSlice::new(text.as_bytes()));
        assert_eq!(file.write_vectored(&slices).await.unwrap(), 15);
        assert_eq!(file.write_vectored(&slices[..1]).await.unwrap(), 0);
        let text = fs::read_to_string(folder.at("file")).await.unwrap();
        assert_eq!(text, "one, two, three");
    });
}

/// A path whose file or directory goes with it, as a `NamedTempFile`.
struct Owned(PathBuf);

impl AsRef<Path> for Owned {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if is_in_world() {
            return;
        }
        let removed = std::fs::remove_file(&self.0).or_else(|_| std::fs::remove_dir_all(&self.0));
        removed.expect("it was there until now");
    }
}

#[test]
fn an_owned_path_is_kept_until_the_call_has_ended() {
    in_every_runtime(|_| async {
        let folder = Folder::new();
        let path = || Owned(folder.at("file"));
        let write = || fs::write(folder.at("file"), "text");
        let mut options = OpenOptions::new();
        options.read(true).write(true);

        write().await.unwrap();
        File::open(path()).await.unwrap();
        write().await.unwrap();
        options.open(path()).await.unwrap();
        File::create(path()).await.unwrap();
        write().await.unwrap();
        assert_eq!(fs::read(path()).await.unwrap(), b"text");
        write().await.unwrap();
        assert_eq!(fs::read_to_string(path()).await.unwrap(), "text");
        write().await.unwrap();
        assert!(fs::metadata(path()).await.unwrap().is_file());
        write().await.unwrap();
        assert!(fs::symlink_metadata(path()).await.unwrap().is_file());
        write().await.unwrap();
        assert!(fs::try_exists(path()).await.unwrap());
        write().await.unwrap();
        fs::canonicalize(path()).await.unwrap();
        write().await.unwrap();
        let copied = fs::copy(path(), folder.at("copy")).await;
        assert_eq!(copied.unwrap(), 4);
        fs::write(path(), "text").await.unwrap();
        let _ = fs::remove_file(folder.at("file")).await;
        fs::create_dir_all(folder.at("file/a")).await.unwrap();
        drop(fs::read_dir(path()).await.unwrap());
        // The directory that the new one is created in goes with its path.
        struct Within(#[allow(dead_code)] Owned, PathBuf);
        impl AsRef<Path> for Within {
            fn as_ref(&self) -> &Path {
                &self.1
            }
        }
        let _ = fs::remove_dir_all(folder.at("file")).await;
        for recursive in [false, true] {
            fs::create_dir_all(folder.at("file")).await.unwrap();
            let within = Within(path(), folder.at("file/b"));
            let mut builder = fs::DirBuilder::new();
            builder.recursive(recursive).create(within).await.unwrap();
            assert_eq!(
                fs::try_exists(folder.at("file")).await.unwrap(),
                is_in_world()
            );
            let _ = fs::remove_dir_all(folder.at("file")).await;
        }
    });
}
