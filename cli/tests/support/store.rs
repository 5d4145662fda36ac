//! The object store of `nlx`'s examples, whose server and clients are programs of helpers.
//!
//! `cargo test --workspace` builds the example; to run these tests alone, run `cargo build -p nlx
//! --example object_store --profile test` first.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nlx_testkit::buffers::pattern;

use super::helper::Helper;
use super::until;

/// A server with the folder of its objects, and files for its clients.
pub struct Store {
    server: Running,
    pub address: String,
    /// The socket of the server's helper.
    socket: PathBuf,
    folder: tempfile::TempDir,
}

impl Store {
    /// Starts a server behind this helper, and waits until it serves.
    pub fn start(helper: &Helper) -> Store {
        let folder = tempfile::tempdir().unwrap();
        let mut serve = program(helper);
        serve.arg("serve").arg(folder.path().join("store"));
        let mut server = serve.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let server = Running(server);
        let address = line.rsplit(' ').next().unwrap().trim().to_string();
        assert!(line.starts_with("serving ") && address.contains(":12345:41:1"), "{line:?}");
        Store { server, address, socket: helper.socket.clone(), folder }
    }

    /// Returns the command of a client behind this helper.
    pub fn client(&self, helper: &Helper, arguments: &[&str]) -> Command {
        let mut command = program(helper);
        // Behind the same helper it finds the server by itself.
        if helper.socket != self.socket {
            command.args(["--server", &self.address]);
        }
        command.args(arguments);
        command
    }

    /// Runs a client to its end, which must be a success; returns its output.
    #[track_caller]
    pub fn succeeds(&self, helper: &Helper, arguments: &[&str]) -> String {
        let output = self.client(helper, arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Puts an object of this length and gets it; each client uses other names.
    pub fn put_and_get(&self, helper: &Helper, client: usize, length: usize) {
        let name = format!("object-{client}-{length}");
        let (file, copy) = (self.file(&name), self.file(&format!("{name}.copy")));
        fs::write(&file, pattern(client as u64, length)).unwrap();
        self.succeeds(helper, &["put", &file, &name]);
        self.succeeds(helper, &["get", &name, &copy]);
        assert!(fs::read(&copy).unwrap() == pattern(client as u64, length), "{name} came back changed");
    }

    /// Starts a client that uploads a file so large that it never ends.
    pub fn uploading(&self, helper: &Helper) -> Running {
        let (endless, before) = (self.file("endless"), self.last_upload());
        fs::File::create(&endless).unwrap().set_len(1 << 36).unwrap();
        let mut put = self.client(helper, &["put", &endless, "endless"]);
        let client = Running(put.stderr(Stdio::piped()).spawn().unwrap());
        until("nothing is uploaded", || self.last_upload() > before);
        client
    }

    /// Returns the number of the last upload of which the server has some bytes.
    fn last_upload(&self) -> Option<u64> {
        let files = fs::read_dir(self.folder.path().join("store")).unwrap().map(Result::unwrap);
        let begun = files.filter(|file| file.metadata().is_ok_and(|data| data.len() > 0));
        begun.filter_map(|file| file.file_name().to_str()?.strip_prefix(".upload-")?.parse().ok()).max()
    }

    /// Returns a path for a client's file.
    pub fn file(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// Waits until the server ends by itself.
    pub fn ends(mut self) {
        until("the server does not end", || !self.server.lives());
    }
}

/// Returns the command of the example, behind a helper.
fn program(helper: &Helper) -> Command {
    // Examples are in a folder beside the programs.
    let program = Path::new(env!("CARGO_BIN_EXE_nlx")).with_file_name("examples").join("object_store");
    assert!(program.exists(), "not built: cargo build -p nlx --example object_store");
    let mut command = Command::new(program);
    command.arg(format!("--helper={}", helper.socket.display()));
    command
}

/// A program, which is killed by SIGKILL when this is dropped.
pub struct Running(Child);

impl Running {
    pub fn lives(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Waits until it ends with a failure; returns its standard error.
    pub fn fails(mut self) -> String {
        until("it does not end", || !self.lives());
        assert!(!self.0.wait().unwrap().success());
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
