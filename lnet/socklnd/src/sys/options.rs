use crate::{NiConfig, SockConfig};

/// The socket options that every connection gets (lnet-wire 29).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// True if TCP delays small segments to combine them (Nagle's algorithm).
    pub nagle: bool,
    /// The send buffer in bytes; 0 keeps the system's default.
    pub tx_buffer_size: u32,
    /// The receive buffer in bytes; 0 keeps the system's default.
    pub rx_buffer_size: u32,
    /// TCP's own keepalive: seconds of silence before the first probe; 0 disables it.
    pub keepalive_idle_s: u32,
    /// TCP's own keepalive: unanswered probes before the connection breaks.
    pub keepalive_count: u32,
    /// TCP's own keepalive: seconds between probes.
    pub keepalive_intvl_s: u32,
    /// Seconds for which sent data may stay unacknowledged: no progress, as far as TCP is concerned
    /// (lnet-wire 28).
    pub timeout_s: u32,
    /// The congestion control (TCP_CONGESTION); `None` keeps the system's default.
    pub congestion_control: Option<String>,
    /// The type of service, or traffic class; `None` keeps the system's default.
    pub tos: Option<u8>,
}

impl Options {
    pub(crate) fn of(config: &SockConfig, ni: &NiConfig) -> Options {
        Options {
            nagle: config.nagle,
            tx_buffer_size: config.tx_buffer_size,
            rx_buffer_size: config.rx_buffer_size,
            keepalive_idle_s: config.keepalive_idle_s,
            keepalive_count: config.keepalive_count,
            keepalive_intvl_s: config.keepalive_intvl_s,
            timeout_s: ni.timeout_s,
            congestion_control: config.congestion_control.clone(),
            tos: ni.tos,
        }
    }
}
