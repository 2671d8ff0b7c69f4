//! Metadata of files: [`Metadata`], [`FileType`] and [`Permissions`].

use std::io;
use std::time::SystemTime;

use super::platform;
use crate::kernel::files;
use crate::sys::unsupported;

/// Also for a kernel that passes calls on.
impl From<std::fs::Metadata> for files::Metadata {
    fn from(metadata: std::fs::Metadata) -> files::Metadata {
        files::Metadata {
            file_type: metadata.file_type().into(),
            length: metadata.len(),
            mode: platform::mode(&metadata.permissions()),
            modified: metadata.modified().ok(),
            accessed: metadata.accessed().ok(),
            created: metadata.created().ok(),
            stat: platform::stat(&metadata),
        }
    }
}

impl From<std::fs::FileType> for files::FileType {
    fn from(file_type: std::fs::FileType) -> files::FileType {
        if file_type.is_dir() {
            files::FileType::Directory
        } else if file_type.is_file() {
            files::FileType::File
        } else if file_type.is_symlink() {
            files::FileType::Symlink
        } else {
            platform::special(file_type)
        }
    }
}

/// Information about a file or directory, returned by [`metadata`](super::metadata()),
/// [`File::metadata`] and [`DirEntry::metadata`].
///
/// ```
/// # polder::block_on(async {
/// let metadata = polder::fs::metadata("src").await?;
/// assert!(metadata.is_dir() && !metadata.is_file());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
///
/// [`File::metadata`]: super::File::metadata
/// [`DirEntry::metadata`]: super::DirEntry::metadata
#[derive(Clone, Debug)]
pub struct Metadata(pub(super) files::Metadata);

impl Metadata {
    pub(super) fn of_system(metadata: std::fs::Metadata) -> Metadata {
        Metadata(metadata.into())
    }

    /// Returns the file type.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(polder::fs::metadata("src").await?.file_type().is_dir());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn file_type(&self) -> FileType {
        FileType(self.0.file_type)
    }

    /// Returns whether this is a directory.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(polder::fs::metadata("src").await?.is_dir());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Returns whether this is a regular file.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(polder::fs::metadata("Cargo.toml").await?.is_file());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Returns whether this is a symbolic link. Only [`symlink_metadata`](super::symlink_metadata)
    /// and [`DirEntry::metadata`](super::DirEntry::metadata) report one.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(!polder::fs::metadata("Cargo.toml").await?.is_symlink());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Returns the length in bytes, which is zero for a simulated directory.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let length = polder::fs::read("Cargo.toml").await?.len() as u64;
    /// assert_eq!(polder::fs::metadata("Cargo.toml").await?.len(), length);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[allow(clippy::len_without_is_empty)] // As the standard library's.
    pub fn len(&self) -> u64 {
        self.0.length
    }

    /// Returns the permissions. A simulated file permits everything.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let permissions = polder::fs::metadata("Cargo.toml").await?.permissions();
    /// println!("read-only: {}", permissions.readonly());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn permissions(&self) -> Permissions {
        Permissions { mode: self.0.mode }
    }

    /// Returns the time of the last write.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let modified = polder::fs::metadata("Cargo.toml").await?.modified()?;
    /// assert!(modified < std::time::SystemTime::now());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`Unsupported`](io::ErrorKind::Unsupported) if the system does not report it, and in a
    /// simulated world.
    pub fn modified(&self) -> io::Result<SystemTime> {
        known(self.0.modified)
    }

    /// Returns the time of the last read, if the system records it.
    ///
    /// ```
    /// # polder::block_on(async {
    /// println!("{:?}", polder::fs::metadata("Cargo.toml").await?.accessed()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`modified`](Self::modified).
    pub fn accessed(&self) -> io::Result<SystemTime> {
        known(self.0.accessed)
    }

    /// Returns the time of creation.
    ///
    /// ```
    /// # polder::block_on(async {
    /// // Not every file system records it.
    /// println!("{:?}", polder::fs::metadata("Cargo.toml").await?.created());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// As [`modified`](Self::modified).
    pub fn created(&self) -> io::Result<SystemTime> {
        known(self.0.created)
    }
}

fn known(time: Option<SystemTime>) -> io::Result<SystemTime> {
    time.ok_or_else(|| unsupported("this file time is not available on this platform"))
}

/// The type of a file.
///
/// ```
/// # polder::block_on(async {
/// let [src, manifest] = ["src", "Cargo.toml"].map(polder::fs::metadata);
/// assert_ne!(src.await?.file_type(), manifest.await?.file_type());
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileType(pub(super) files::FileType);

impl FileType {
    /// Returns whether this is a directory.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(polder::fs::metadata("src").await?.file_type().is_dir());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_dir(&self) -> bool {
        self.0 == files::FileType::Directory
    }

    /// Returns whether this is a regular file.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(polder::fs::metadata("Cargo.toml").await?.file_type().is_file());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_file(&self) -> bool {
        self.0 == files::FileType::File
    }

    /// Returns whether this is a symbolic link.
    ///
    /// ```
    /// # polder::block_on(async {
    /// assert!(!polder::fs::metadata("Cargo.toml").await?.file_type().is_symlink());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn is_symlink(&self) -> bool {
        self.0 == files::FileType::Symlink
    }

    pub(super) fn of_system(file_type: std::fs::FileType) -> FileType {
        FileType(file_type.into())
    }
}

/// The permissions of a file: its mode on Unix, otherwise whether it is read-only.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # polder::block_on(async {
/// use polder::fs;
///
/// let path = folder.path().join("script");
/// fs::write(&path, "#!/bin/sh\n").await?;
/// # #[cfg(unix)] {
/// let mut permissions = fs::metadata(&path).await?.permissions();
/// permissions.set_mode(permissions.mode() | 0o111);
/// fs::set_permissions(&path, permissions).await?;
/// # }
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Permissions {
    /// Except on Unix: all bits, or all but [`WRITE`].
    pub(super) mode: u32,
}

/// The bits of a mode that permit writing.
const WRITE: u32 = 0o222;

impl Permissions {
    /// Returns whether nobody may write; on Unix according to the mode.
    ///
    /// ```
    /// # polder::block_on(async {
    /// println!("{}", polder::fs::metadata("Cargo.toml").await?.permissions().readonly());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn readonly(&self) -> bool {
        self.mode & WRITE == 0
    }

    /// Sets whether it may be written; on Unix by all users, as in the standard library (`set_mode`
    /// is more precise). Takes effect with [`set_permissions`](super::set_permissions).
    ///
    /// ```
    /// # polder::block_on(async {
    /// let mut permissions = polder::fs::metadata("Cargo.toml").await?.permissions();
    /// permissions.set_readonly(true);
    /// assert!(permissions.readonly());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn set_readonly(&mut self, readonly: bool) {
        if readonly {
            self.mode &= !WRITE;
        } else {
            self.mode |= WRITE;
        }
    }

    /// Returns the mode, with the bits of the file type; 0o100777 for a simulated file.
    ///
    /// ```
    /// # polder::block_on(async {
    /// let permissions = polder::fs::metadata("Cargo.toml").await?.permissions();
    /// println!("{:o}", permissions.mode());
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(unix)]
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Sets the mode. Takes effect with [`set_permissions`](super::set_permissions).
    ///
    /// ```
    /// # polder::block_on(async {
    /// let mut permissions = polder::fs::metadata("Cargo.toml").await?.permissions();
    /// permissions.set_mode(0o600);
    /// assert_eq!(permissions.mode(), 0o600);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    #[cfg(unix)]
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = mode;
    }

    /// Returns permissions with this mode.
    ///
    /// ```
    /// use polder::fs::Permissions;
    ///
    /// assert!(Permissions::from_mode(0o444).readonly());
    /// ```
    #[cfg(unix)]
    pub fn from_mode(mode: u32) -> Permissions {
        Permissions { mode }
    }
}
