# Boots systemd as PID 1 of namespaces of its own, below a root made of the host's /usr and what the
# arguments name, read-only; it ends when standard input does. Needs root. Prints unshare's pid.
# usage: systemd_box.sh FOLDER PATH...
set -e
work=$1
shift
mkdir -p "$work/cgroup" "$work/root"
mount -t cgroup2 none "$work/cgroup"
ours=$work/cgroup/edgekit-box-$$
mkdir "$ours"

inside='
set -e
root=$1; shift
mount -t tmpfs -o mode=755 box "$root"
cd "$root"
mkdir usr proc sys dev run var etc tmp
chmod 1777 tmp
for link in bin sbin lib lib64; do ln -s usr/$link $link; done
for path in /usr "$@"; do
  mkdir -p ".$path"
  mount --bind "$path" ".$path"
  mount -o remount,ro,bind ".$path"
done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,ro,bind proc/sys
mount -t sysfs -o ro sys sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs -o mode=755 dev dev
for node in null:3 zero:5 full:7 random:8 urandom:9; do
  mknod -m 666 dev/${node%:*} c 1 ${node#*:}
done
mkdir dev/pts dev/shm
chmod 1777 dev/shm
ln -s /proc/self/fd dev/fd
mount -t tmpfs -o mode=755 run run
mkdir -p etc/systemd/system var/lib var/log var/cache var/tmp
chmod 1777 var/tmp
cp /etc/passwd /etc/group /etc/nsswitch.conf /etc/ld.so.cache etc/
: > etc/machine-id
# Of what systemd starts at boot, the journal is enough. The kernel has one audit log, the host uses it.
ln -s /dev/null etc/systemd/system/systemd-journald-audit.socket
printf "[Unit]\nDescription=box\nWants=systemd-journald.service\n" > etc/systemd/system/sysinit.target
printf "[Unit]\nDescription=box\nRequires=sysinit.target\n" > etc/systemd/system/basic.target
exec env -i container=edgekit-box PATH=/usr/sbin:/usr/bin chroot . /lib/systemd/systemd \
  --unit=basic.target --log-target=journal --show-status=no
'
sh -c 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"' - "$ours" \
  unshare --cgroup --pid --fork --kill-child --uts --ipc sh -c "$inside" - "$work/root" "$@" \
  < /dev/null >&2 &
echo $!
cat > /dev/null
kill -9 $! 2> /dev/null || true
wait
for _ in 1 2 3 4 5 6 7 8 9 10; do
  find "$ours" -depth -type d -exec rmdir {} \; 2> /dev/null
  [ -d "$ours" ] || break
  sleep 0.2
done
