//! Objects as files. A new one is written under a name of its own and renamed when it is complete:
//! whoever reads sees the old object or the new one, and after a crash there is one of the two.

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

/// Unfinished uploads at a time. Each is an open file.
const UPLOADS_MAX: usize = 256;

/// Whoever has not sent anything for so long does not come back.
const UPLOAD_IDLE_MAX: Duration = Duration::from_secs(60);

/// No object's name begins like this.
const UPLOAD: &str = ".upload-";

pub(crate) type Result<T> = std::result::Result<T, Errno>;

pub(crate) struct Disk {
    directory: PathBuf,
    uploads: Mutex<HashMap<u64, Arc<Mutex<Upload>>>>,
    next: AtomicU64,
}

/// An object that is being written. Its file goes with it, unless it was renamed.
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
        // Gone already, if it has become an object.
        let _ = fs::remove_file(&self.path);
    }
}

impl Disk {
    /// The store in a directory, which is made if it is not there. What uploads of old have left is
    /// removed.
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

    /// The upload becomes an object.
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

    /// Length and version of an object.
    pub(crate) fn stat(&self, name: &Name) -> Result<(u64, u64)> {
        identity(&File::open(self.path(name)).map_err(errno)?)
    }

    /// Reads bytes of an object; ESTALE if it has been replaced since it had this version.
    pub(crate) fn read(&self, name: &Name, version: u64, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let file = File::open(self.path(name)).map_err(errno)?;
        if identity(&file)?.1 != version {
            return Err(Errno::ESTALE);
        }
        file.read_exact_at(bytes, offset).map_err(errno)
    }

    /// The next objects after this name, and whether there are more.
    pub(crate) fn list(&self, after: &str) -> Result<(Vec<Object>, bool)> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            // What is no object, nobody has put there with this program.
            let Some(name) = entry.file_name().to_str().and_then(|name| name.parse::<Name>().ok()) else {
                continue;
            };
            // It may have been deleted a moment ago.
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

    /// An upload is its client's alone.
    fn upload(&self, client: Address, number: u64) -> Result<Arc<Mutex<Upload>>> {
        let upload = lock(&self.uploads).get(&number).cloned().ok_or(Errno::ENOENT)?;
        let theirs = lock(&upload).client == client;
        if theirs { Ok(upload) } else { Err(Errno::EPERM) }
    }
}

/// Length and version of a file. Every object is a file of its own, made at a time of its own.
fn identity(file: &File) -> Result<(u64, u64)> {
    let data = file.metadata().map_err(errno)?;
    let changed_ns = (data.mtime() as u64).wrapping_mul(1_000_000_000).wrapping_add(data.mtime_nsec() as u64);
    Ok((data.len(), data.ino().rotate_left(32) ^ changed_ns))
}

fn errno(error: io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// What a thread that panicked has left is whole: nothing in here is changed in two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
