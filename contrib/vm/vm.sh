#!/usr/bin/env bash
# Runs a shell command in a virtual machine that boots Debian's kernel on this
# machine's own root file system. README.md explains its purpose and how it works.
#
#   vm.sh COMMAND
#
# VM_DIR      where packages are unpacked and the output of a run is kept
# VM_CPUS     processors of the guest (2)
# VM_MEMORY   its memory (6G), which also holds the files that it writes
# VM_TIMEOUT  seconds after which a run is stopped (7200)
# VM_ACCEL    kvm or tcg, instead of the result of a trial boot
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
DIR=$(realpath -m "${VM_DIR:-$HERE/../../_output/vm}")
ROOT=$DIR/root # where the packages are unpacked
OUT=$DIR/out   # the output of a run; the guest sees it as /run/vm
TRIAL_TIMEOUT=30
# On a busy machine an emulated timer is late, so the kernel's timer check fails. The kernel would also distrust
# the TSC, and without it every read of the clock exits the guest. Mitigations of attacks on the processor take half
# the time of an emulated one.
APPEND="console=ttyS0 panic=-1 quiet no_timer_check tsc=reliable mitigations=off"
# The modules that the guest needs to mount its root; it loads the others from there.
EARLY_MODULES=(virtio_pci virtio_console 9pnet_virtio 9p overlay)

say() { echo "vm: $*" >&2; }
fail() { say "$*"; exit 125; }

# fetch downloads the kernel, and QEMU if it is not installed, and unpacks
# them. Nothing is installed.
fetch() {
	local archives=$DIR/archives kernel package
	[[ -e $DIR/fetched ]] && return
	say "downloading a kernel and QEMU to $DIR (once)"
	rm -rf "$ROOT" "$archives" && mkdir -p "$ROOT" "$archives/partial"
	kernel=$(kernel_package)
	if [[ -z $kernel ]]; then
		apt-get update -qq || fail "apt-get update failed"
		kernel=$(kernel_package)
	fi
	[[ -n $kernel ]] || fail "apt knows no linux-image-amd64: this needs Debian on amd64"
	(cd "$archives" && apt-get download -qq -o APT::Sandbox::User=root "$kernel") || fail "could not download $kernel"
	if ! command -v qemu-system-x86_64 >/dev/null; then
		apt-get install -y -qq --download-only --no-install-recommends -o APT::Sandbox::User=root \
			-o Dir::Cache::archives="$archives" qemu-system-x86 >/dev/null || fail "could not download qemu-system-x86"
	fi
	for package in "$archives"/*.deb; do
		dpkg -x "$package" "$ROOT"
	done
	rm -rf "$archives"
	depmod -b "$ROOT" "$(release)"
	touch "$DIR/fetched"
}

# kernel_package prints the package that linux-image-amd64 depends on.
kernel_package() { apt-cache depends linux-image-amd64 2>/dev/null | awk '/Depends: linux-image-/{print $2; exit}'; }

release() { ls "$ROOT/lib/modules"; }

# initramfs writes the initial file system of the guest: busybox, a script and
# the modules needed to mount the root.
initramfs() {
	local tree=$DIR/initramfs module
	rm -rf "$tree" && mkdir -p "$tree"/{bin,dev,proc,sys,modules,lower,upper,root}
	cp "$(command -v busybox)" "$tree/bin/busybox"
	install -m 0755 "$HERE/initramfs-init" "$tree/init"
	modprobe --dirname "$ROOT" --set-version "$(release)" --show-depends --all "${EARLY_MODULES[@]}" |
		awk '$1 == "insmod" && !seen[$2]++ {print $2}' >"$tree/modules/paths"
	while read -r module; do
		cp "$module" "$tree/modules/"
		basename "$module" >>"$tree/modules/order"
	done <"$tree/modules/paths"
	(cd "$tree" && find . | busybox cpio -o -H newc 2>/dev/null) | gzip -1 >"$DIR/initramfs.gz"
	rm -rf "$tree"
}

# qemu replaces this process with a guest that runs for at most the given number of seconds and ends
# with its parent, however that ends. The guest's console is written to a file.
qemu() { # accelerator seconds console argument...
	local accel=$1 seconds=$2 console=$3 program=qemu-system-x86_64 libraries=$ROOT/usr/lib/x86_64-linux-gnu
	local -a data=() environment=() options
	shift 3
	if [[ -x $ROOT/usr/bin/$program ]]; then
		program=$ROOT/usr/bin/$program
		data=(-L "$ROOT/usr/share/qemu" -L "$ROOT/usr/share/seabios" -L "$ROOT/usr/lib/ipxe/qemu")
		environment=("LD_LIBRARY_PATH=$libraries:$ROOT/lib/x86_64-linux-gnu" "QEMU_MODULE_DIR=$libraries/qemu")
	fi
	case $accel in
	kvm) options=(-accel kvm -cpu host) ;;
	tcg) options=(-accel "tcg,thread=multi" -cpu max) ;;
	*) fail "VM_ACCEL is $accel, neither kvm nor tcg" ;;
	esac
	exec setpriv --pdeathsig KILL timeout --kill-after=5 "$seconds" setpriv --pdeathsig KILL \
		env "${environment[@]}" "$program" "${data[@]}" "${options[@]}" \
		-nodefaults -no-user-config -display none -no-reboot -machine q35 \
		-smp "${VM_CPUS:-2}" -m "${VM_MEMORY:-6G}" \
		-kernel "$ROOT/boot/vmlinuz-$(release)" -initrd "$DIR/initramfs.gz" \
		-serial "file:$console" "$@" </dev/null
}

# accelerator prints kvm if a guest boots with it, otherwise tcg. That /dev/kvm
# can be opened is not sufficient: on some virtual machines it cannot run an ordinary kernel.
# The result is valid until this machine boots or another kernel is fetched.
accelerator() {
	local key answer=tcg
	[[ -n ${VM_ACCEL:-} ]] && echo "$VM_ACCEL" && return
	key="$(cat /proc/sys/kernel/random/boot_id) $(release)"
	if [[ -e $DIR/accelerator && $(head -1 "$DIR/accelerator") == "$key" ]]; then
		tail -1 "$DIR/accelerator"
		return
	fi
	if [[ -w /dev/kvm ]]; then
		say "trying whether KVM boots a guest"
		(qemu kvm "$TRIAL_TIMEOUT" "$DIR/trial.log" -append "$APPEND vm.trial") >/dev/null 2>&1 || true
		grep -q "vm: trial boot" "$DIR/trial.log" && answer=kvm
	fi
	printf '%s\n%s\n' "$key" "$answer" >"$DIR/accelerator"
	echo "$answer"
}

main() {
	local accel pid printer status=0 limit=${VM_TIMEOUT:-7200} began=$SECONDS
	[[ $# == 1 && -n $1 ]] || fail "usage: vm.sh COMMAND (one argument, for a shell)"
	((EUID == 0)) || fail "this needs root: the guest reads all of this machine's files"
	[[ $(uname -m) == x86_64 ]] || fail "this needs an amd64 machine, not $(uname -m)"
	command -v busybox >/dev/null || fail "busybox is missing: apt-get install busybox-static"
	mkdir -p "$DIR"
	exec 7>"$DIR/lock"
	flock --nonblock 7 || fail "another guest is using $DIR; wait for it, or set VM_DIR"
	fetch
	initramfs
	accel=$(accelerator)
	rm -rf "$OUT" && mkdir -p "$OUT"
	cp "$HERE/guest-init.sh" "$OUT/init"
	{
		printf 'export PATH=%q HOME=%q VM_OUT=/run/vm VM_ACCEL=%q\ncd %q\n%s\n' "$PATH" "$HOME" "$accel" "$PWD" "$1"
	} >"$OUT/command"
	echo "$ROOT/lib/modules/$(release)" >"$OUT/modules"
	say "booting Linux $(release) with $accel"
	qemu "$accel" "$limit" "$OUT/console.log" -append "$APPEND" \
		-fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=root,mount_tag=root \
		-fsdev "local,id=out,path=$OUT,security_model=none" -device virtio-9p-pci,fsdev=out,mount_tag=out \
		-device virtio-rng-pci -device virtio-serial-pci \
		-chardev "file,id=output,path=$OUT/output.log" -device virtserialport,chardev=output,name=output &
	pid=$!
	# However this script ends, the guest ends first.
	trap 'kill "$pid" 2>/dev/null && wait "$pid" || true' EXIT
	setpriv --pdeathsig KILL tail --pid="$pid" -s 0.2 -n +1 -F "$OUT/output.log" 2>/dev/null &
	printer=$!
	trap 'say "interrupted"; exit 130' INT TERM HUP
	wait "$pid" || status=$?
	wait "$printer" || true
	if ((status == 124)); then
		fail "the guest did not end within $limit s and was ended; its output is in $OUT"
	fi
	if [[ ! -s $OUT/status ]]; then
		tail -n 20 "$OUT/console.log" >&2 || true
		fail "the guest ended without a result (QEMU: $status); its output is in $OUT"
	fi
	status=$(<"$OUT/status")
	say "the command ended with status $status after $((SECONDS - began)) s; output and files are in $OUT"
	exit "$status"
}

main "$@"
