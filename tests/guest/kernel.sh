# shellcheck shell=bash
# The guest's kernel: a Debian package that is unpacked, reduced to what the guest loads, and cached. It is not installed.

# The modules that the guest loads, without their dependencies. Soft-RoCE requests crc32_generic by name when it starts, so
# it is a dependency of no module.
MODULES=(virtio_pci virtio_console 9pnet_virtio 9p af_packet dummy veth sch_netem crc32_generic ib_uverbs rdma_ucm rdma_rxe)

# Prints the folder with `image`, `modules/` and their order in `order`: of this package file, or else of Debian's newest
# kernel, or else of the newest in the cache.
kernel_folder() { # kernel_folder DEB WORK
    local deb=$1 work=$2 package folder
    mkdir -p "$CACHE" || die "cannot write to $CACHE, where kernels are kept"
    if [ -n "$deb" ]; then
        [ -f "$deb" ] || die "no kernel package $deb"
        keep_kernel "$deb" "$work"
        return
    fi
    package=$(newest_kernel)
    folder=$(kept "$package")
    if [ -n "$package" ] && [ -d "$folder" ]; then
        echo "$folder"
    elif fetch_kernel "$work" >&2; then
        keep_kernel "$work"/linux-image-*.deb "$work"
    else
        # The newest comes last.
        folder=$(compgen -G "$(kept '*')" | sort -V | tail -1) || true
        [ -n "$folder" ] || die "no kernel: apt-get cannot download what linux-image-amd64 depends on (apt-get update first?), and none was kept in $CACHE"
        echo "guest: taking the kernel that was kept: $(basename "$folder")" >&2
        echo "$folder"
    fi
}

# Prints the name of the package of Debian's newest kernel; nothing if apt has none.
newest_kernel() {
    { apt-cache depends linux-image-amd64 2>/dev/null || true; } | sed -n 's/^ *Depends: \(linux-image-[0-9].*-amd64\)$/\1/p' | head -1
}

# Prints the cache folder of a package's kernel. Another list of modules has another folder.
kept() { # kept PACKAGE
    echo "$CACHE/$1.$(echo "${MODULES[*]}" | cksum | cut -d' ' -f1)"
}

# Downloads the package of the newest kernel. Updates package lists that name an older one, which needs root.
fetch_kernel() { # fetch_kernel WORK
    command -v apt-get >/dev/null || return 1
    download_kernel "$1" && return
    [ "$(id -u)" = 0 ] || return 1
    apt-get update -q && download_kernel "$1"
}

download_kernel() { # download_kernel WORK
    local package
    package=$(newest_kernel)
    [ -n "$package" ] && (cd "$1" && apt-get download -q "$package")
}

# Unpacks a package, caches the parts that the guest needs, and prints their folder.
keep_kernel() { # keep_kernel DEB WORK
    local deb=$1 tree=$2/kernel package folder version image
    package=$(dpkg-deb -f "$deb" Package) || die "$deb is no Debian package"
    folder=$(kept "$package")
    if [ ! -d "$folder" ]; then
        dpkg-deb -x "$deb" "$tree" || die "cannot unpack $deb; is $2 full?"
        version=$(basename "$tree"/lib/modules/*)
        image=$tree/boot/vmlinuz-$version
        [ -f "$image" ] || die "$deb has no kernel"
        mkdir -p "$tree/kept/modules"
        uncompress_kernel "$image" "$tree/kept/image" || cp "$image" "$tree/kept/image"
        keep_modules "$tree" "$version" "$tree/kept"
        # A concurrent run writes the same files.
        mv -T "$tree/kept" "$folder" 2>/dev/null || [ -d "$folder" ] || die "cannot write $folder"
        rm -rf "$tree"
    fi
    echo "$folder"
}

# Copies the modules, in the order in which they are loaded.
keep_modules() { # keep_modules TREE VERSION TO
    local tree=$1 version=$2 to=$3 module files file name
    depmod -b "$tree" "$version" || die "depmod does not understand the modules of $version"
    for module in "${MODULES[@]}"; do
        files=$(modprobe -d "$tree" -S "$version" --show-depends "$module") || die "kernel $version has no module $module"
        # Lines are "insmod FILE OPTIONS…" or "builtin NAME".
        while read -r file; do
            name=$(basename "$file")
            name=${name%%.ko*}.ko
            [ ! -e "$to/modules/$name" ] || continue
            case $file in
            *.xz) xz -dc "$file" ;;
            *.zst) zstd -dcq "$file" ;;
            *) cat "$file" ;;
            esac >"$to/modules/$name"
            echo "$name" >>"$to/order"
        done < <(sed -n 's/^insmod \([^ ]*\).*/\1/p' <<<"$files")
    done
}

# Uncompresses a kernel: in emulation this would be the longest part of the guest's boot.
uncompress_kernel() { # uncompress_kernel IMAGE TO
    local magic tool at
    while IFS='|' read -r magic tool; do
        while read -r at; do
            # The tools fail at the bytes after the compressed part.
            tail -c +$((at + 1)) "$1" | $tool >"$2" 2>/dev/null || true
            is_elf "$2" && return
        done < <(LC_ALL=C grep -aboP "$magic" "$1" | cut -d: -f1)
    done <<'METHODS'
\xFD7zXZ\x00|xz -dc --single-stream
\x28\xB5\x2F\xFD|zstd -dcq
\x1F\x8B\x08|gzip -dcq
METHODS
    return 1
}

is_elf() { [ "$(head -c4 "$1" | tr -d '\0')" = $'\x7fELF' ]; }
