//! Objects as files. A new object is written to a temporary file, which is renamed when it is
//! complete: a reader sees the old object or the new one, and so does a restart after a crash.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nlx::{Address, Errno};

use crate::protocol::{Name, Object, PAGE};

/// Maximum number of unfinished uploads; each is an open file.
const UPLOADS_MAX: usize = 256;

/// An upload without a request for this time is considered abandoned.
const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(60);

/// The prefix of temporary files; no object's name begins with it.
const UPLOAD: &str = ".upload-";

pub(crate) type Result<T> = std::result::Result<T, Errno>;

pub(crate) struct Disk {
    directory: PathBuf,
    uploads: Mutex<HashMap<u64, Arc<Mutex<Upload>>>>,
    next: AtomicU64,
}

/// An object that is being written. Dropping it removes its file, unless the file was renamed.
struct Upload {
    name: Name,
    client: Address,
    file: File,
    path: PathBuf,
    length: u64,
    written: u64,
    touched: Instant,
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Fails after the rename to an object, because the file has another name then.
        let _ = fs::remove_file(&self.path);
    }
}

impl Disk {
    /// Opens the store in a directory, which is created if it does not exist. Files of earlier
    /// uploads are removed.
    pub(crate) fn open(directory: &Path) -> io::Result<Disk> {
        fs::create_dir_all(directory)?;
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with(UPLOAD) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(Disk { directory: directory.to_owned(), uploads: Mutex::default(), next: AtomicU64::new(1) })
    }

    pub(crate) fn create(&self, client: Address, name: Name, length: u64) -> Result<u64> {
        let mut uploads = lock(&self.uploads);
        uploads.retain(|_, upload| lock(upload).touched.elapsed() < UPLOAD_IDLE_MAX);
        if uploads.len() >= UPLOADS_MAX {
            return Err(Errno::EAGAIN);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let path = self.directory.join(format!("{UPLOAD}{number}"));
        let file = File::create_new(&path).map_err(errno)?;
        let upload = Upload { name, client, file, path, length, written: 0, touched: Instant::now() };
        uploads.insert(number, Arc::new(Mutex::new(upload)));
        Ok(number)
    }

    /// Writes the next bytes of an upload.
    pub(crate) fn write(&self, client: Address, number: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let upload = self.upload(client, number)?;
        let mut upload = lock(&upload);
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        if offset != upload.written || end > upload.length {
            return Err(Errno::EINVAL);
        }
        upload.file.write_all_at(bytes, offset).map_err(errno)?;
        (upload.written, upload.touched) = (end, Instant::now());
        Ok(())
    }

    /// Makes the upload an object.
    pub(crate) fn commit(&self, client: Address, number: u64) -> Result<()> {
        let upload = self.upload(client, number)?;
        lock(&self.uploads).remove(&number);
        let upload = lock(&upload);
        if upload.written != upload.length {
            return Err(Errno::EINVAL);
        }
        upload.file.sync_all().map_err(errno)?;
        fs::rename(&upload.path, self.path(&upload.name)).map_err(errno)?;
        File::open(&self.directory).and_then(|directory| directory.sync_all()).map_err(errno)
    }

    /// Returns the length and the version of an object.
    pub(crate) fn stat(&self, name: &Name) -> Result<(u64, u64)> {
        identity(&File::open(self.path(name)).map_err(errno)?)
    }

    /// Reads bytes of an object, as many as there are or fit, and returns their number; ESTALE if its
    /// version differs.
    pub(crate) fn read(&self, name: &Name, version: u64, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let file = File::open(self.path(name)).map_err(errno)?;
        let (length, present) = identity(&file)?;
        if present != version {
            return Err(Errno::ESTALE);
        }
        let length = length.saturating_sub(offset).min(bytes.len() as u64) as usize;
        file.read_exact_at(&mut bytes[..length], offset).map_err(errno)?;
        Ok(length)
    }

    /// Returns the next objects after this name, and whether there are more.
    pub(crate) fn list(&self, after: &str) -> Result<(Vec<Object>, bool)> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            // Skips files that this program has not written.
            let Some(name) = entry.file_name().to_str().and_then(|name| name.parse::<Name>().ok()) else {
                continue;
            };
            // It may have been deleted since the directory was read.
            let Ok(data) = entry.metadata() else { continue };
            if name.as_str() > after && data.is_file() {
                objects.push(Object { name, length: data.len() });
            }
        }
        objects.sort();
        let more = objects.len() > PAGE;
        objects.truncate(PAGE);
        Ok((objects, more))
    }

    pub(crate) fn delete(&self, name: &Name) -> Result<()> {
        fs::remove_file(self.path(name)).map_err(errno)
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// Finds an upload of this client; EPERM for one of another client.
    fn upload(&self, client: Address, number: u64) -> Result<Arc<Mutex<Upload>>> {
        let upload = lock(&self.uploads).get(&number).cloned().ok_or(Errno::ENOENT)?;
        let theirs = lock(&upload).client == client;
        if theirs { Ok(upload) } else { Err(Errno::EPERM) }
    }
}

/// Returns the length and version of a file. Two objects differ in their inode or their
/// modification time.
fn identity(file: &File) -> Result<(u64, u64)> {
    let data = file.metadata().map_err(errno)?;
    let changed_ns = (data.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(data.mtime_nsec() as u64);
    Ok((data.len(), data.ino().rotate_left(32) ^ changed_ns))
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Locks a mutex, also after a panic: no state behind it is changed in two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
