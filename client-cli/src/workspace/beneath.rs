//! Opens files beneath the workspace only.
//!
//! The kernel resolves every path (`openat2` with `RESOLVE_BENEATH`), so there is no race between check and use. Rules
//! about names are applied to the path of the opened file, never to the requested path.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::Workspace;
use super::path_error::{PathError, shown};
use super::protected::Guard;
use super::roots::{Root, path_of};
use crate::policy::Operation;

/// An opened file or folder with its real path.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The descriptor, which all further operations use.
    pub(crate) fd: OwnedFd,
    /// Its place in the workspace with all links resolved; empty for the project's folder.
    pub(crate) real: PathBuf,
    /// Its metadata.
    pub(crate) stat: Stat,
}

impl Opened {
    /// Returns the file type.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }
}

/// A name in an opened folder. The name may or may not exist.
#[derive(Debug)]
pub(crate) struct Place {
    /// The folder.
    pub(crate) folder: OwnedFd,
    /// The name in it.
    pub(crate) name: String,
    /// The folder's place in the workspace with all links resolved, joined with the name.
    pub(crate) real: PathBuf,
}

impl Workspace {
    /// Parses a path as programs write it: relative to the project's folder, or absolute within the workspace. Returns
    /// the place, with the links in it.
    ///
    /// # Errors
    /// Returns [`PathError::Outside`] for `..`, `~`, URLs, NUL bytes, and absolute paths outside the workspace.
    pub(crate) fn relative(&self, given: &str) -> Result<PathBuf, PathError> {
        let outside = |reason| PathError::Outside { path: shown(given), reason };
        if given.contains('\0') {
            return Err(outside("it contains a NUL byte"));
        }
        if given == "~" || given.starts_with("~/") {
            return Err(outside("`~` is not expanded; give a path relative to the workspace"));
        }
        if given.starts_with("file:") {
            return Err(outside("it is a URL; give a path"));
        }
        let path = Path::new(given);
        let (mut place, inner) = if path.is_absolute() {
            self.folders()
                .find_map(|root| Some((self.place_at(&root.path)?, root.rest_of(path)?)))
                .ok_or_else(|| outside("it is absolute and not beneath the workspace's folder"))?
        } else {
            (PathBuf::new(), path)
        };
        for component in inner.components() {
            match component {
                Component::Normal(name) => place.push(name),
                Component::CurDir => {}
                _ => {
                    return Err(outside(
                        "`..` is not allowed; give the path from the workspace's folder",
                    ));
                }
            }
        }
        Ok(place)
    }

    /// Opens a path with flags of `open`, following links that stay in the workspace.
    ///
    /// # Errors
    /// Returns [`PathError`] when it leads outside or the system refuses.
    pub(crate) fn open_beneath(
        &self,
        given: &str,
        relative: &Path,
        flags: OFlags,
    ) -> Result<Opened, PathError> {
        let system = |errno| PathError::System { path: shown(given), errno };
        let outside = |reason| PathError::Outside { path: shown(given), reason };
        let (root, inner) = self.folder_of(relative).ok_or_else(|| outside("it leads outside"))?;
        // openat2(2): `BENEATH` blocks magic links too at present, but callers must not rely on
        // that.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let fd = match root.resolve(inner, flags, resolve) {
            // The path leads outside this folder, or contains an absolute link. It may lead back into the workspace.
            Err(Errno::XDEV) => self.resolve_absolute_links(root, inner, flags),
            other => other,
        };
        let fd = fd.map_err(|errno| match errno {
            Errno::XDEV => outside("a link in it leads outside"),
            Errno::NOSYS => PathError::Unsupported,
            other => system(other),
        })?;
        let stat = rustix::fs::fstat(&fd).map_err(system)?;
        // Without `/proc`, the rules about names cannot be applied to the file, so it is not used.
        let real = path_of(&fd).map_err(|_| PathError::Unsupported)?;
        // The kernel returns the present path. If the workspace was moved, that does not begin with
        // the path at which it was opened.
        let real = self.place_at(&real).ok_or_else(|| outside("the workspace was moved"))?;
        Ok(Opened { fd, real, stat })
    }

    /// Follows links that lead out of a folder and back into the workspace, which `RESOLVE_BENEATH` refuses. The resolved
    /// path is opened without following links, so a link that changes in the meantime is refused.
    fn resolve_absolute_links(
        &self,
        root: &Root,
        inner: &Path,
        flags: OFlags,
    ) -> Result<OwnedFd, Errno> {
        // Each failure becomes `XDEV`, because the original error would tell what exists outside.
        let in_folder = || {
            let folder = inner.parent().ok_or(Errno::XDEV)?;
            let folder = root.path.join(folder).canonicalize().map_err(|_| Errno::XDEV)?;
            Ok(folder.join(inner.file_name().ok_or(Errno::XDEV)?))
        };
        // `canonicalize` would also follow a link in the last component, which must be kept here.
        let target = if flags.contains(OFlags::NOFOLLOW) {
            in_folder()?
        } else {
            match root.path.join(inner).canonicalize() {
                Ok(target) => target,
                // The last component may be missing; the error depends on whether it would be in the workspace.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => in_folder()?,
                Err(_) => return Err(Errno::XDEV),
            }
        };
        let (root, inner) = self.folder_of(&target).ok_or(Errno::XDEV)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let last_may_be_link = flags.contains(OFlags::NOFOLLOW | OFlags::PATH);
        let links =
            if last_may_be_link { ResolveFlags::empty() } else { ResolveFlags::NO_SYMLINKS };
        // The answer must not reveal whether something exists outside: a link to a missing file there gets the same
        // error as a link to an existing one.
        root.resolve(inner, flags, resolve | links).map_err(|errno| match errno {
            Errno::LOOP => Errno::XDEV,
            other => other,
        })
    }

    /// Opens a regular file for reading.
    ///
    /// The type is checked before the file is opened for reading, because opening a FIFO or a device may block or have
    /// effects.
    ///
    /// # Errors
    /// Returns [`PathError`] if it is not a readable regular file in the workspace, or one that programs may not read.
    pub(crate) fn open_file(&self, given: &str) -> Result<Opened, PathError> {
        let relative = self.relative(given)?;
        let mut opened = self.open_beneath(given, &relative, OFlags::PATH)?;
        self.require_file(given, &opened)?;
        self.refuse_own(given, &opened.real)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        // Reopens the checked file through its descriptor: by now the path may lead to another file.
        let same = format!("/proc/self/fd/{}", opened.fd.as_raw_fd());
        opened.fd = rustix::fs::open(same, flags, Mode::empty())
            .map_err(|errno| PathError::System { path: shown(given), errno })?;
        Ok(opened)
    }

    /// Opens a folder for listing.
    ///
    /// # Errors
    /// Returns [`PathError`] if it is not a readable folder in the workspace, or one that programs may not read.
    pub(crate) fn open_folder(&self, given: &str, relative: &Path) -> Result<Opened, PathError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let opened = self.open_beneath(given, relative, flags)?;
        self.refuse_own(given, &opened.real)?;
        Ok(opened)
    }

    /// Opens the parent folder of a path. A link in the last component is not followed.
    ///
    /// # Errors
    /// Returns [`PathError`] if the path is the workspace itself, or the folder does not exist in the workspace.
    pub(crate) fn open_place(&self, given: &str, relative: &Path) -> Result<Place, PathError> {
        let itself =
            || PathError::Outside { path: shown(given), reason: "it is the workspace itself" };
        if self.is_folder_itself(relative) {
            return Err(itself());
        }
        let name = relative.file_name().and_then(|name| name.to_str()).ok_or_else(itself)?;
        let folder = relative.parent().unwrap_or(Path::new(""));
        let folder = self.open_beneath(given, folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let real = folder.real.join(name);
        Ok(Place { folder: folder.fd, name: name.to_owned(), real })
    }

    /// Refuses anything except a regular file.
    ///
    /// # Errors
    /// Returns [`PathError::Kind`] with the file type.
    pub(crate) fn require_file(&self, given: &str, opened: &Opened) -> Result<(), PathError> {
        match kind_name(opened.kind()) {
            "a file" => Ok(()),
            found => Err(PathError::Kind { path: shown(given), found, wanted: "a regular file" }),
        }
    }

    /// Refuses PML's own files, which programs never read.
    ///
    /// # Errors
    /// Returns [`PathError::Protected`].
    pub(crate) fn refuse_own(&self, given: &str, real: &Path) -> Result<(), PathError> {
        match self.protection(real, Operation::Read) {
            Some(place) if place.guard == Guard::Refused => Err(place.refused(given)),
            _ => Ok(()),
        }
    }

    /// Returns the real path of a file that may not exist yet: links in the existing part are resolved.
    ///
    /// # Errors
    /// Returns [`PathError`] when it leads outside or the system refuses.
    pub(crate) fn real_of(&self, given: &str, relative: &Path) -> Result<PathBuf, PathError> {
        for ancestor in relative.ancestors() {
            match self.open_beneath(given, ancestor, OFlags::PATH) {
                Ok(opened) => {
                    // What does not exist contains no links, so it is appended unchanged.
                    let rest = relative.strip_prefix(ancestor).unwrap_or(Path::new(""));
                    // Component by component: an empty rest would end the path with `/`.
                    return Ok(opened.real.components().chain(rest.components()).collect());
                }
                Err(error) if error.is_missing() => {}
                Err(error) => return Err(error),
            }
        }
        // Not reached: the outermost ancestor that is tried is a folder of the workspace, which is open.
        Ok(relative.to_owned())
    }

    /// Returns the real path of a name, without following it if it is a link.
    ///
    /// # Errors
    /// As [`Workspace::real_of`].
    pub(crate) fn real_of_entry(&self, given: &str, relative: &Path) -> Result<PathBuf, PathError> {
        let folder = self.real_of(given, relative.parent().unwrap_or(Path::new("")))?;
        Ok(relative.file_name().map_or_else(|| folder.clone(), |name| folder.join(name)))
    }
}

/// Returns the name of a file type for messages.
pub(crate) fn kind_name(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a file",
        FileType::Directory => "a directory",
        FileType::Symlink => "a symbolic link",
        FileType::Fifo => "a FIFO",
        FileType::Socket => "a socket",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::Unknown => "of an unknown kind",
    }
}
