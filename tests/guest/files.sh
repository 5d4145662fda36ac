# shellcheck shell=bash
# The files in the guest's memory: busybox, the modules, tools, the command, and the libraries of all of them.

# Commands that this machine must have, and their Debian packages.
declare -A NEEDED=(
    [qemu-system-x86_64]=qemu-system-x86 [busybox]=busybox-static [cpio]=cpio [modprobe]=kmod [depmod]=kmod [ip]=iproute2
    [rdma]=iproute2 [tc]=iproute2 [xz]=xz-utils [zstd]=zstd [dpkg-deb]=dpkg [ldd]=libc-bin
)
# Tools over the RDMA libraries: the guest gets those that this machine has.
RDMA_TOOLS=(ibv_devices ibv_devinfo ibv_rc_pingpong rping ucmatose ib_write_bw ib_send_lat)

# Checks that this machine has the commands; names all that are missing.
check_tools() {
    local tool missing=()
    [ "$(uname -m)" = x86_64 ] || die "a guest has this machine's programs, and only on x86-64 it is known how"
    for tool in "${!NEEDED[@]}"; do
        command -v "$tool" >/dev/null || missing+=("${NEEDED[$tool]}")
    done
    for tool in libibverbs.so.1=libibverbs1 librdmacm.so.1=librdmacm1; do
        [ -z "$verbs" ] || library "${tool%=*}" >/dev/null || missing+=("${tool#*=}")
    done
    [ -z "$verbs" ] || [ -e /etc/libibverbs.d/rxe.driver ] || missing+=(ibverbs-providers)
    [ ${#missing[@]} = 0 ] ||
        die "Debian packages that a guest needs and that are not installed: $(printf '%s\n' "${missing[@]}" | sort -u | paste -sd' ')"
    # ldd fails for a static program.
    ! ldd "$(command -v busybox)" >/dev/null 2>&1 || die "busybox needs libraries; install the Debian package busybox-static"
}

# Prints the path of a library that programs find by its name.
library() { # library NAME
    local path
    path=$(ldconfig -p | sed -n "s/^\t${1//./\\.} (.*x86-64.*) => //p" | head -1)
    [ -n "$path" ] && echo "$path"
}

# Puts a file at its own path into a tree, with the libraries that it needs.
put() { # put TREE FILE
    local to=$1$2 needed
    [ ! -e "$to" ] || return 0
    mkdir -p "$(dirname "$to")"
    if ! is_elf "$2"; then
        cp -L "$2" "$to"
        return
    fi
    # The guest needs no debug information, and its memory is small.
    strip --strip-debug -o "$to" "$2" 2>/dev/null || cp -L "$2" "$to"
    for needed in $(ldd "$2" 2>/dev/null | sed -nE 's/.*=> (\/[^ ]+) \(0x.*/\1/p; s/^[[:space:]]*(\/[^ ]+) \(0x.*/\1/p'); do
        put "$1" "$needed"
    done
}

# Makes WORK/files, from which the guest starts.
make_files() { # make_files WORK KERNEL COMMAND…
    local tree=$1/tree
    put_system "$tree" "$2"
    [ -z "$verbs" ] || put_verbs "$tree"
    put_command "$tree" "${@:3}"
    (cd "$tree" && find . -mindepth 1 | cpio -o -H newc -R 0:0 --quiet) >"$1/files" || die "cannot write $1/files; is the disk full?"
    rm -rf "$tree"
}

put_system() { # put_system TREE KERNEL
    local tool
    mkdir -p "$1"/{bin,busybox,dev,etc,proc,root,run,sys,tmp}
    chmod 1777 "$1/tmp"
    cp "$(command -v busybox)" "$1/busybox/busybox"
    cp -r "$2/modules" "$2/order" "$1/etc"
    cp "$HERE/init" "$1/init"
    cp "$HERE/network" "$1/etc/network"
    # Not the shell of busybox, which prefers its built-in `ip` to other programs.
    for tool in sh ip rdma tc; do put "$1" "$(type -P $tool)"; done
    [ -e "$1/bin/sh" ] || ln -s "$(type -P sh)" "$1/bin/sh"
    # The C library loads it when a thread ends.
    put "$1" "$(library libgcc_s.so.1)"
    printf '%s\n' root:x:0:0::/root:/bin/sh nlx:x:1000:1000::/tmp:/bin/sh >"$1/etc/passwd"
    printf '%s\n' root:x:0: nlx:x:1000: >"$1/etc/group"
    printf '%s\n' '127.0.0.1 localhost' >"$1/etc/hosts"
}

put_verbs() { # put_verbs TREE
    local tool path
    put "$1" /etc/libibverbs.d/rxe.driver
    for path in "$(library libibverbs.so.1)" "$(library librdmacm.so.1)" /usr/lib/*/libibverbs/librxe-rdmav*.so; do
        put "$1" "$path"
    done
    for tool in "${RDMA_TOOLS[@]}"; do
        path=$(command -v "$tool") || continue
        put "$1" "$path"
    done
}

# Adds the command with its environment: its file and the requested ones, folder, variables.
put_command() { # put_command TREE COMMAND ARG…
    local tree=$1 file command
    shift
    for file in ${with[@]+"${with[@]}"}; do
        [ -f "$file" ] || die "--with $file: no such file"
        put "$tree" "$(realpath -s "$file")"
    done
    command=$1
    # A program of this machine has the same path in the guest; any other command must be one of the guest.
    if command=$(type -P "$1"); then
        command=$(realpath -s "$command")
        put "$tree" "$command"
    else
        command=$1
    fi
    {
        variables
        printf 'cd %q 2>/dev/null || cd /tmp\n' "$PWD"
        printf 'exec'
        for file in "$command" "${@:2}"; do printf " '%s'" "${file//\'/\'\\\'\'}"; done
        echo
    } >"$tree/etc/command"
    printf "NET='%s'\nLOSS='%s'\nAS_USER='%s'\nSHARES='%s'\n" "$net" "$loss" "$user" "$(share_names)" >"$tree/etc/guest"
}

# Prints the variables that are passed on, in shell syntax.
variables() {
    local name value
    for name in $(compgen -e | grep -E '^(CARGO|RUST|NLX_|PROPTEST_|CI$)' || true) ${names[@]+"${names[@]}"}; do
        [[ $name =~ ^[A-Za-z_][A-Za-z_0-9]*$ ]] || die "--env $name: no name of a variable"
        value=${!name-}
        printf "export %s='%s'\n" "$name" "${value//\'/\'\\\'\'}"
    done
}
