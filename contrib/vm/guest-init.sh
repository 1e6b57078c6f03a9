#!/usr/bin/env bash
# Second stage of the guest's init, on the host's file system: sets up
# a running system, runs the command, and powers the guest off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8

ln -sf /proc/self/fd /dev/fd
ln -sf fd/0 /dev/stdin
ln -sf fd/1 /dev/stdout
ln -sf fd/2 /dev/stderr
mkdir -p /dev/pts /dev/shm /run/lock /run/netns "/lib/modules/$(uname -r)"
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --bind "$(</run/vm/modules)" "/lib/modules/$(uname -r)"
# Containers' overlays cannot be on the root file system, which is an overlay itself.
for dir in /tmp /var/lib/kin /var/lib/containerd; do
	mkdir -p "$dir"
	mount -t tmpfs -o size=90% tmpfs "$dir"
done
chmod 1777 /tmp
hostname vm
ip link set lo up
sysctl -qw fs.inotify.max_user_instances=4096 net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ulimit -n 65536
modprobe -a tun openvswitch geneve

# The port whose output the host prints.
for port in /sys/class/virtio-ports/*; do
	[[ $(<"$port/name") == output ]] && exec 3>"/dev/${port##*/}"
done
# In the first seconds after a boot, Open vSwitch 3.1 starts without threads for new flows,
# and then loses their packets.
until (($(cut -d. -f1 /proc/uptime) >= 12)); do
	sleep 0.5
done
echo "vm: the guest is up after $(cut -d' ' -f1 /proc/uptime) s" >&3

bash /run/vm/command </dev/null >&3 2>&3 3>&-
echo $? >/run/vm/status

dmesg >/run/vm/dmesg.log
sync
umount /run/vm
echo o >/proc/sysrq-trigger
sleep 10
