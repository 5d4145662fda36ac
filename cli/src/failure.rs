//! The failures of commands, with advice for the user.

use std::fmt;

use lnet_api::{Errno, LNetError};
use lnet_nid::{NetType, Nid, printable};
use lnet_node::{NodeError, PingFailure, holder_of};
use serde_json::{Value, json};

/// Advice for all failures about RDMA.
const RDMA_HINT: &str =
    "'nlx net devices' shows what this host has for networks over RDMA, and what it lacks";

/// The failure of a command: the step, the reason, and advice for the user.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    /// The failed step: one word, for programs.
    step: &'static str,
    errno: Option<Errno>,
    message: String,
    advice: Option<String>,
    /// The node that the command was about.
    nid: Option<Nid>,
    /// The exit status of the program.
    code: u8,
}

impl Failure {
    /// Returns a failure without a message, for one that was printed already, or after the reader
    /// has closed the pipe.
    pub(crate) fn quiet() -> Failure {
        Failure::new("")
    }

    pub(crate) fn is_quiet(&self) -> bool {
        self.message.is_empty()
    }

    /// Creates a failure with this message: one line, in which foreign text is escaped.
    pub(crate) fn new(text: impl AsRef<str>) -> Failure {
        let message = printable(text.as_ref()).to_string();
        Failure { step: "command", errno: None, message, advice: None, nid: None, code: 1 }
    }

    pub(crate) fn at(step: &'static str, errno: Errno, message: impl AsRef<str>) -> Failure {
        Failure { step, errno: Some(errno), ..Failure::new(message) }
    }

    /// Adds advice.
    pub(crate) fn hint(self, advice: impl Into<String>) -> Failure {
        Failure { advice: Some(advice.into()), ..self }
    }

    /// Sets the exit status of the program, which is 1 otherwise.
    pub(crate) fn exit(self, code: u8) -> Failure {
        Failure { code, ..self }
    }

    /// Returns the exit status of the program.
    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Adds the node that the command was about.
    pub(crate) fn about(self, nid: Nid) -> Failure {
        Failure { nid: Some(nid), ..self }
    }

    /// Adds advice if a resource of the system is exhausted.
    fn hint_on(self, errno: Errno) -> Failure {
        match errno {
            Errno::EMFILE => self.hint("raise this process's limit of open files with 'ulimit -n'"),
            Errno::ENFILE => self.hint("this host has as many files open as it may: see 'sysctl fs.file-nr'"),
            Errno::EAGAIN => self.hint("raise the limit of threads with 'ulimit -u'"),
            Errno::ENOMEM => self.hint("this host is short of memory: see 'free', and 'ulimit -v'"),
            _ => self,
        }
    }

    /// Describes why a node was not asked, or did not answer.
    pub(crate) fn of_ping(failure: &PingFailure) -> Failure {
        let PingFailure { target, step, errno, reason, advice } = failure;
        Failure::at(step.name(), *errno, format!("{target}: {reason}")).hint(advice).about(*target)
    }

    /// Describes why a node cannot be configured or started. `port` is the one that it listens on.
    pub(crate) fn of_node(error: &NodeError, port: u16) -> Failure {
        let errno = error.errno();
        match error {
            NodeError::Start { nid, source } if nid.net().net_type() == NetType::O2IB => {
                Failure::of_verbs(*nid, errno, source)
            }
            NodeError::Start { nid, .. } => Failure::of_start(*nid, errno, port)
                .unwrap_or_else(|| Failure::at("start", errno, error.to_string()).hint_on(errno)),
            NodeError::NoDriver { net } => Failure::no_driver(net),
            NodeError::Rdma { .. } => Failure::at("driver", errno, error.to_string()).hint(RDMA_HINT),
            NodeError::Interface { reason, .. } if reason.contains("RDMA") || reason.contains("o2ib") => {
                Failure::at("interface", errno, error.to_string()).hint(RDMA_HINT)
            }
            NodeError::Interface { .. } | NodeError::NoNetwork => {
                Failure::at("interface", errno, error.to_string())
                    .hint("'nlx net show --why' shows for each interface why it can or cannot be used")
            }
            NodeError::System { .. } | NodeError::Partitions { .. } => {
                Failure::at("start", errno, error.to_string()).hint_on(errno)
            }
            _ => Failure::at("configuration", errno, error.to_string()),
        }
    }

    /// Describes the usual errors of a node's start.
    fn of_start(nid: Nid, errno: Errno, port: u16) -> Option<Failure> {
        let at =
            nid.ip().map_or_else(|| nid.to_string(), |ip| std::net::SocketAddr::new(ip, port).to_string());
        let failure = |step, message, advice: &str| Failure::at(step, errno, message).hint(advice);
        let cannot = |reason| format!("{nid}: cannot listen on {at}: {reason}");
        match (errno, holder_of(nid)) {
            (Errno::EADDRINUSE, Some(holder)) => Some(Failure::held(nid, &holder)),
            (Errno::EADDRINUSE, None) => Some(failure(
                "listen",
                cannot("the port is in use by a program that is not nlx, perhaps the kernel's LNet"),
                "'ss -ltnp' shows the program: stop it, or set another port with --accept-port, on all nodes",
            )),
            (Errno::EACCES, _) => Some(failure(
                "listen",
                cannot("ports below 1024 need privileges"),
                "run as root, give the program CAP_NET_BIND_SERVICE, or name an --accept-port above 1023 on all nodes",
            )),
            (Errno::EADDRNOTAVAIL, _) => {
                Some(failure("listen", cannot("this host does not have the address"), "see 'ip address'"))
            }
            _ => None,
        }
    }

    fn held(nid: Nid, holder: &str) -> Failure {
        Failure::at("claim", Errno::EADDRINUSE, format!("{nid} is held by {holder}")).hint(
            "stop that program, or use another address for this one: one program at a time can hold a NID",
        )
    }

    /// Returns the failure of an NI over RDMA to start; the message names the port, if it is about
    /// one.
    fn of_verbs(nid: Nid, errno: Errno, source: &LNetError) -> Failure {
        if let Some(holder) = holder_of(nid).filter(|_| errno == Errno::EADDRINUSE) {
            return Failure::held(nid, &holder);
        }
        let (step, advice) = match errno {
            Errno::EADDRINUSE => (
                "listen",
                "another program, or the kernel's o2iblnd, has this NID's port: 'rdma resource show cm_id' shows it; stop it, or \
                 name another --service, on all nodes alike",
            ),
            Errno::EACCES => (
                "listen",
                "run as root, give the program CAP_NET_BIND_SERVICE, or name a --service above 1023 on all nodes",
            ),
            Errno::ENOMEM => {
                ("start", "raise the limit of lockable memory: see 'ulimit -l' and 'nlx net devices'")
            }
            _ => ("start", RDMA_HINT),
        };
        let reason = source.to_string();
        let reason = reason.strip_prefix(&format!("{nid}: ")).unwrap_or(&reason);
        Failure::at(step, errno, format!("{nid}: {reason}")).hint(advice)
    }

    /// Describes a network or NID of a type without a driver.
    pub(crate) fn no_driver(name: impl fmt::Display) -> Failure {
        Failure::at("driver", Errno::EINVAL, format!("{name}: there is no driver for networks of this type"))
            .hint("use a network of type tcp or o2ib, for instance 'tcp(eth0)'")
    }

    /// Returns the object that a command prints: `{"error": …}`, and `nid` if it was about one
    /// node.
    pub(crate) fn to_line(&self) -> Value {
        match self.nid {
            Some(nid) => json!({ "nid": nid.to_string(), "error": self.to_json() }),
            None => json!({ "error": self.to_json() }),
        }
    }

    /// Returns `{"step": …, "errno": …, "message": …, "try": …}`.
    pub(crate) fn to_json(&self) -> Value {
        let errno = self.errno.map(|errno| format!("{errno:?}"));
        json!({ "step": self.step, "errno": errno, "message": self.message, "try": self.advice })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.advice {
            Some(advice) => write!(f, "\n     try: {advice}"),
            None => Ok(()),
        }
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(error.to_string())
    }
}

/// Adds the attempted action to an error.
pub(crate) trait Context<T> {
    fn context(self, action: &str) -> Result<T, Failure>;
}

impl<T, E: fmt::Display> Context<T> for Result<T, E> {
    fn context(self, action: &str) -> Result<T, Failure> {
        self.map_err(|error| Failure::new(format!("{action}: {error}")))
    }
}
