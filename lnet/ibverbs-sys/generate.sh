#!/bin/sh
# Generates src/bindings.rs from the headers of rdma-core. Needs bindgen, rustfmt, libclang, libibverbs-dev and librdmacm-dev,
# and the C headers of the other architecture (Debian: libc6-dev-arm64-cross, linux-libc-dev-arm64-cross; their folder can
# be given as the argument). Run it after a change of the lists below, and commit its output.
set -eu
cd "$(dirname "$0")/src"
arm=${1:-/usr/aarch64-linux-gnu/include}

functions='ibv_(get_device_(list|name|guid|index)|free_device_list|(open|close|query)_device|query_port|alloc_pd|dealloc_pd
    |reg_mr|dereg_mr|(create|destroy)_(cq|qp|comp_channel)|modify_qp|get_cq_event|ack_cq_events|(get|ack)_async_event)
    |_ibv_query_gid_table
    |rdma_((create|destroy)_event_channel|(create|destroy|migrate)_id|bind_addr|resolve_(addr|route)|listen|connect
    |establish|accept|reject|disconnect|notify|init_qp_attr|set_option|get_cm_event|ack_cm_event)'
types='ibv_(gid_type|port_attr|port_state|wc_flags|send_flags|access_flags|qp_attr_mask)|rdma_cm_event_type'

list() { printf %s "$1" | tr -d ' \n'; }

generate() { # generate ARCHITECTURE CLANG-ARGUMENT...
    arch=$1
    shift
    bindgen /usr/include/rdma/rdma_cma.h --output "$made/$arch.rs" --rust-target 1.82 --no-doc-comments \
        --disable-header-comment --with-derive-default --no-prepend-enum-name \
        --dynamic-loading Functions --dynamic-link-require-all \
        --bitfield-enum 'ibv_(access_flags|qp_attr_mask|wc_flags|send_flags|port_cap_flags)' \
        --constified-enum-module 'ibv_(qp_type|qp_state|port_state|wc_opcode|wr_opcode|wc_status)' \
        --opaque-type 'ibv_(srq|wq|mw|ah|mw_bind_info|mw_bind|sa_path_rec)' \
        --blocklist-type '_*pthread_.*|__atomic_wide_counter.*|sockaddr.*|in_.*|in6_.*|sa_.*' \
        --raw-line 'use nix::libc::{pthread_cond_t, pthread_mutex_t};' \
        --raw-line 'use nix::libc::{sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};' \
        --default-non-copy-union-style manually_drop \
        --allowlist-function "$(list "$functions")" --allowlist-type "$types" \
        --allowlist-var 'IBV_LINK_LAYER_.*|RDMA_OPTION_ID.*' -- "$@"
}
made=$(mktemp -d)
trap 'rm -r "$made"' EXIT
generate x86_64 --target=x86_64-linux-gnu
generate aarch64 --target=aarch64-linux-gnu -nostdlibinc -isystem "$arm" -idirafter /usr/include

# One file for both: they differ only by the size of the mutex in some structures: 40 bytes on x86_64, 48 on aarch64.
awk '
    NR == FNR { arm[FNR] = $0; arm_lines = FNR; next }
    { lines = FNR }
    $0 == arm[FNR] { print; next }
    !match($0, /[0-9]+usize/) { wrong = 1; exit }
    {
        before = substr($0, 1, RSTART - 1)
        bytes = substr($0, RSTART) + 0
        after = substr($0, RSTART + RLENGTH)
        if (arm[FNR] != before (bytes + 8) "usize" after) { wrong = 1; exit }
        size = bytes - 40 "usize + MUTEX"
        print before (before ~ /- $/ ? "(" size ")" : size) after
    }
    END { if (wrong || lines != arm_lines) { print "line " lines ": differs by more than the mutex" > "/dev/stderr"; exit 1 } }
' "$made/aarch64.rs" "$made/x86_64.rs" >bindings.rs
