# Clean Debian systems in containers, for what tests the packages and the README. Sourced, never run.
# shellcheck shell=bash
#
# Wants `name`, who speaks; `root`, the repository; `target`, cargo's directory; `profile`, dev or
# release. A container has loopback and nothing else. What it is made of is kept below `place`.
place=$target/debian
nspawn='' leader='' machine=''

# Says why this cannot run here, and ends.
skip() {
  echo "$name: $1; skipped" >&2
  exit 77
}

# Whether everything is there that packages and containers need.
demand() {
  local program
  [ "$(id -u)" = 0 ] || skip "not root, who alone can start a container"
  for program in debootstrap systemd-nspawn nsenter "$@"; do
    command -v "$program" >/dev/null || skip "$program is missing (debootstrap, systemd-container, \
dpkg-dev, debhelper, dh-python and fakeroot have what is needed)"
  done
  mkdir -p "$place"
}

# Builds what packages are made of, and says so to dist/debian/build.
build() {
  local flags=() below=debug
  if [ "$profile" != dev ]; then flags=(--profile "$profile") below=$profile; fi
  (cd "$root" && cargo build --quiet "${flags[@]}" -p dafs-cli -p dafs-capi -p dafs-preload)
  DAFS_WHEEL=$(PROFILE=$profile "$root/crates/python/run" wheel) || skip "the wheel cannot be built"
  export DAFS_WHEEL DAFS_PROFILE=$below
}

# A clean system of what this machine is itself, with these packages: base PACKAGE,PACKAGE
base() {
  local code mirror kept
  code=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  kept=$place/base-$code-$(echo "$1" | cksum | cut -d" " -f1)
  [ -e "$kept" ] && { echo "$kept"; return; }
  mirror=$(apt-get indextargets --format '$(REPO_URI) $(CODENAME)' 'Created-By: Packages' |
    awk -v code="$code" '$2 == code { print $1; exit }')
  [ -n "$mirror" ] || skip "apt knows no mirror of ${code:-this system} (apt-get update)"
  rm -rf "$place/base.new"
  debootstrap --variant=minbase --include="$1" "$code" "$place/base.new" "$mirror" \
    > "$place/debootstrap.log" 2>&1 ||
    skip "debootstrap failed: $(tail -1 "$place/debootstrap.log")"
  rm -rf "$place"/base.new/var/cache/apt/archives/*.deb
  mv "$place/base.new" "$kept"
  echo "$kept"
}

# A copy of a system, as `machine`.
copy_of() {
  machine=$(mktemp -d "$place/machine.XXXXXX")
  cp -a --reflink=auto "$1/." "$machine"
  echo "127.0.0.1 localhost" > "$machine/etc/hosts"
}

# What starts a container of `machine`; more options of systemd-nspawn, or a command, follow.
starter() {
  start=(systemd-nspawn --quiet --register=no --keep-unit --private-network
    --directory="$machine" --console=pipe)
}

# Starts the machine with its own systemd.
boot() {
  local state start
  starter
  "${start[@]}" "$@" --boot </dev/null > "$machine.log" 2>&1 &
  nspawn=$!
  # systemd-nspawn's child is the container's first process, when there is one.
  for _ in $(seq 600); do
    kill -0 "$nspawn" 2>/dev/null || skip "no container can be started: $(tail -1 "$machine.log")"
    leader=$(pgrep -P "$nspawn" -x systemd || :)
    [ -z "$leader" ] || break
    sleep 0.1
  done
  [ -n "$leader" ] || skip "the container's systemd does not start"
  for _ in $(seq 600); do
    state=$(inside systemctl is-system-running 2>/dev/null || :)
    case $state in running | degraded) break ;; esac
    sleep 0.1
  done
}

# A command in the machine that was started.
inside() {
  nsenter --target "$leader" --mount --uts --ipc --net --pid --cgroup -- "$@"
}

# Ends the machine and takes it away, unless DAFS_KEEP=1.
away() {
  [ -z "$nspawn" ] || { kill "$nspawn" 2>/dev/null; wait "$nspawn" 2>/dev/null; }
  nspawn='' leader=''
  [ -z "$machine" ] || [ -n "${DAFS_KEEP:-}" ] || rm -rf --one-file-system "$machine" "$machine.log"
  machine=''
}
