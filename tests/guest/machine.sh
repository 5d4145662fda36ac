# shellcheck shell=bash
# The machine: qemu with its emulator. It does not use /dev/kvm, which may run only some kernels.

# Prints the folders that the guest shares, one a line: writable ones first, then the checkout and cargo's target folder.
share_folders() {
    local folder target=${CARGO_TARGET_DIR:-$CHECKOUT/target}
    for folder in ${shares[@]+"${shares[@]}"}; do
        [ -d "$folder" ] || die "--share $folder: no such folder"
        echo "rw $(realpath "$folder")"
    done
    echo "ro $CHECKOUT"
    [ ! -d "$target" ] || echo "ro $(realpath "$target")"
}

# Prints the same for the guest: TAG:FOLDER, an outer folder before those inside it.
share_names() {
    local folder n=0
    share_folders | while read -r _ folder; do
        # These have a meaning in the options of qemu or in the guest's list.
        [[ $folder != *[[:space:],:\']* ]] || die "a folder is shared whose name has a blank, comma, colon or quote: $folder"
        echo "share$n:$folder"
        n=$((n + 1))
    done | sort -t: -k2 | paste -sd' '
}

# Time limit for the boot, in seconds; it takes 3 to 10 on an idle machine. On a busy one the emulator sometimes fails while the
# guest's kernel starts, mostly with many processors: the boot hangs, or an assertion of qemu fails. A machine that has not begun
# with the command is started again; that hides no failure of the command.
BOOT_MAX=90
BOOTS=3

boot_machine() { # boot_machine WORK KERNEL
    local status=0 options=() boots=1
    machine_options "$1"
    mkfifo "$1/out" "$1/err"
    cat "$1/out" &
    cat "$1/err" >&2 &
    # The pipes have writers from the start, so that the readers wait for qemu.
    exec 8<>"$1/out" 9<>"$1/err"
    until start_machine "$@"; do
        echo "guest: it has not got to the command; that was start $boots of $BOOTS" >&2
        [ $boots -lt $BOOTS ] || break
        boots=$((boots + 1))
    done
    exec 8>&- 9>&-
    wait
    [ -z "$verbose" ] || cat "$1/console" >&2
    tell_end "$1" "$status"
}

# Runs the machine once, and sets `status` of boot_machine. Fails if the guest did not begin with the command, except because
# of the time limit.
start_machine() { # start_machine WORK KERNEL
    local until=$((SECONDS + BOOT_MAX))
    : >"$1/status"
    status=0
    timeout -k 5 "$limit" qemu-system-x86_64 "${options[@]}" -kernel "$2/image" -initrd "$1/files" \
        </dev/null >"$1/qemu" 2>&1 8>&- 9>&- &
    qemu=$!
    while [ ! -s "$1/status" ] && kill -0 "$qemu" 2>/dev/null; do
        [ $SECONDS -lt $until ] || kill "$qemu"
        sleep 0.2
    done
    wait "$qemu" || status=$?
    qemu=
    [ -s "$1/status" ] || [ $status = 124 ] || [ $status = 137 ]
}

# Sets `options` of boot_machine.
machine_options() { # machine_options WORK
    local kind folder n=0
    options=(
        -accel "tcg,thread=$([ -n "$numa" ] && echo single || echo multi)" -cpu "max,la57=off" -machine q35 -m "$memory" -nodefaults -display none -no-reboot -no-user-config
        # No test measures absolute time in the guest, and it has no secrets: so without mitigations.
        -append "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check cryptomgr.notests rdinit=/init"
        -serial "file:$1/console" -device virtio-serial-pci
    )
    for n in out err status; do
        options+=(-chardev "file,id=$n,path=$1/$n" -device "virtserialport,chardev=$n,name=$n")
    done
    if [ -n "$numa" ]; then
        options+=(-smp "8,sockets=2,cores=4")
        for n in 0 1; do
            options+=(-object "memory-backend-ram,id=node$n,size=$((memory / 2))M")
            options+=(-numa "node,nodeid=$n,cpus=$((4 * n))-$((4 * n + 3)),memdev=node$n")
        done
        options+=(-numa "dist,src=0,dst=1,val=20")
    else
        options+=(-smp "$cpus")
    fi
    n=0
    while read -r kind folder; do
        [ "$kind" = rw ] && kind=off || kind=on
        options+=(
            -fsdev "local,id=share$n,path=$folder,security_model=none,multidevs=remap,readonly=$kind"
            -device "virtio-9p-pci,fsdev=share$n,mount_tag=share$n"
        )
        n=$((n + 1))
    done < <(share_folders)
}

# The complaints of the guest's kernel: an identifier of the connection manager whose destruction blocks, a bug of the kernel, a
# task or a processor that makes no progress.
COMPLAINTS='cm_destroy_id_wait_timeout|BUG: |Oops: |blocked for more than|soft lockup|detected stalls'

# Prints the kernel's first complaints. They do not change the exit status: the kernel or the command may be at fault.
tell_complaints() { # tell_complaints WORK
    local complaints
    complaints=$(grep -aEm 3 "$COMPLAINTS" "$1/console" 2>/dev/null) || return 0
    echo "guest: its kernel complains; a test that failed beside that shows either a fault of the kernel or what led to it:" >&2
    sed 's/^/guest:   /' <<<"$complaints" >&2
}

# Exits with the command's status, or prints why there is none.
tell_end() { # tell_end WORK STATUS
    local said=
    tell_complaints "$1"
    [ ! -f "$1/status" ] || said=$(tr -d '\0' <"$1/status" | tail -n 1)
    case $said in
    "ended "*) exit "${said#ended }" ;;
    "failed "*)
        echo "guest: ${said#failed }" >&2
        ;;
    *)
        case $2 in
        124 | 137)
            echo "guest: still at work at the time limit of $limit s (--limit)" >&2
            [ -n "$verbose" ] || tail -5 "$1/console" >&2
            exit 124
            ;;
        0) echo "guest: it stopped before the command had ended" >&2 ;;
        *) echo "guest: qemu ended with status $2: $(cat "$1/qemu")" >&2 ;;
        esac
        ;;
    esac
    [ -n "$verbose" ] || [ ! -f "$1/console" ] || tail -20 "$1/console" >&2
    exit 125
}

clean() {
    [ -z "${qemu:-}" ] || kill "$qemu" 2>/dev/null || true
    rm -rf "$work"
}
