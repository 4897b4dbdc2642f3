# The targets of everyday work. `make run` shows the product, `make test` proves it.
CARGO ?= cargo

.PHONY: run quick test test-posix test-postgres test-interop test-interop-nfs test-python test-python-torch bench bench-python check fuzz soak \
  publish-check \
  install-c install-preload fio-engine deb rpm image test-images test-packages test-newcomer

# Serves a directory (DIR=..., by default the Rust toolchain's libraries), copies it whole over
# shared memory and TCP, verifies every byte and prints the speeds. The whole toolchain, 52,000 small
# files, takes minutes: make run DIR=$$(rustc --print sysroot)
run:
	$(CARGO) run --release --bin dafs -- demo $(DIR)

# Every test, and a tiny run of every benchmark and fuzz body. Says at the end where the time went.
test:
	@tools/test

# For everyday work, under two minutes after a build: units, properties, a few hundred seeds of the
# simulator, the rules of the house. What it leaves out is in `make test`.
quick:
	@tools/test --quick

# Our iWARP against the kernel's in a virtual machine, every row of docs/interop.md (ROWS="script
# perftest": those whose names begin so); says what it skips and why. `tests/interop/run
# --install-deps` first, as root.
ROWS ?=
test-interop:
	@tests/interop/run $(ROWS) || [ $$? = 77 ]

# The rows of NFS at full size: a clone of 10,000 files, ten ends of the server. Up to an hour
# for each version of NFS where the virtual machine is emulated. ROWS=nfs-4.1-killed is one row.
test-interop-nfs:
	@DAFS_INTEROP_NFS=full tests/interop/run $(or $(ROWS),nfs) || [ $$? = 77 ]

# What POSIX asks of a file system, of mount and preload: 1,100 cases, and so many SECONDS of random
# calls on each.
SECONDS ?= 60
test-posix:
	@crates/posix-suite/run $(SECONDS) || [ $$? = 77 ]

# PostgreSQL on a mount under pgbench, through ten kills of the server (tests/postgres).
test-postgres:
	@tests/postgres/run || [ $$? = 77 ]

# The Python package: its wheel in a clean virtual environment, with pyarrow, DuckDB, zarr, pandas
# and xarray; and with PyTorch, which is large. `make test` has it with numpy and fsspec alone.
test-python:
	@crates/python/run full || [ $$? = 77 ]
test-python-torch:
	@crates/python/run torch || [ $$? = 77 ]

# Python against the Rust client, and many files at once against one by one, in the same run.
bench-python:
	crates/python/run bench

# What takes long: simulations of so many fresh seeds, 20,000 seeds of the crash world, the
# system's tests on servers with three reactors, and writers that die in the middle of a file of 1 GiB.
SOAK_RUNS ?= 2000
soak:
	DAFS_STORM_SEEDS=20000 $(CARGO) test --package dafs-sim --test storm fixed_seeds
	DAFS_REACTORS=3 $(CARGO) test --package dafs-tests --test system
	DAFS_LARGE_MIB=1024 $(CARGO) test --package dafs-cli --test main lock::a_writer_that_dies
	DAFS_SIM_RUNS=$(SOAK_RUNS) $(CARGO) test --package dafs-sim --test simulation soak -- \
	  --ignored --nocapture

# The figures of the DAFS paper on this machine: table, JSON and plots in target/bench.
bench:
	$(CARGO) run --release --quiet --bin dafs -- bench --output target/bench

# What must be clean before a commit.
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --quiet -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --quiet

# Packages the crates that are published and builds each from its package, as a registry would have
# it; uploads nothing. DIRTY=1 also takes what is not committed. Cargo keeps what it unpacked and built
# of a version, and would take it for this one.
PUBLISHED = base types memory wire iwarp dat gss client
PUBLISH_TARGET = $(or $(CARGO_TARGET_DIR),target)/publish
publish-check:
	rm -rf $(PUBLISH_TARGET)/package $(PUBLISH_TARGET)/debug/.fingerprint/dafs-* \
	  $(or $(CARGO_HOME),$(HOME)/.cargo)/registry/*/-*/dafs-*
	$(CARGO) publish --dry-run --target-dir $(PUBLISH_TARGET) $(if $(DIRTY),--allow-dirty) $(PUBLISHED:%=--package dafs-%)

# Ten minutes of coverage-guided fuzzing for each target; needs nightly and cargo-fuzz.
FUZZ_SECONDS ?= 600
fuzz:
	for target in $$($(CARGO) +nightly fuzz list); do \
	  $(CARGO) +nightly fuzz run $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; \
	done

# libdafs for programs in C and C++, its header, pkg-config file and manual: PREFIX, DESTDIR and
# LIBDIR (lib) say where. ARCHIVE names a libdafs.a that is there already.
PREFIX ?= /usr/local
ARCHIVE ?=
install-c:
ifeq ($(ARCHIVE),)
	$(CARGO) build --release --quiet --package dafs-capi
endif
	crates/capi/install "$(or $(ARCHIVE),$(or $(CARGO_TARGET_DIR),target)/release/libdafs.a)" "$(PREFIX)"

# STXXL's disks on servers, libdafs_stxxl.so, and their header, beside the libdafs of PREFIX
# (docs/extmem.md); takes Debian's libstxxl-dev.
install-stxxl:
	crates/capi/stxxl/install "$(PREFIX)"

# libdafs_preload.so, where `dafs exec` of PREFIX/bin finds it. PRELOAD names one that is there
# already.
PRELOAD ?=
install-preload:
ifeq ($(PRELOAD),)
	$(CARGO) build --release --quiet --package dafs-preload
endif
	install -d "$(DESTDIR)$(PREFIX)/lib/dafs"
	install -m 644 "$(or $(PRELOAD),$(or $(CARGO_TARGET_DIR),target)/release/libdafs_preload.so)" \
	  "$(DESTDIR)$(PREFIX)/lib/dafs/libdafs_preload.so.new"
	mv -f "$(DESTDIR)$(PREFIX)/lib/dafs/libdafs_preload.so.new" \
	  "$(DESTDIR)$(PREFIX)/lib/dafs/libdafs_preload.so"

# The engine for fio, target/fio/dafs.so; takes fio's source from apt, or FIO_SOURCE=DIR.
fio-engine:
	tools/fio/build

# Debian packages in target/debian: server and command, C library, Python (docs/operating/install.md).
# What is not built is built as a release; python3-dafs needs maturin, which pip fetches.
deb:
	@dist/debian/build --check
	$(CARGO) build --release --quiet -p dafs-cli -p dafs-capi -p dafs-preload
	wheel=$$(crates/python/run wheel) || [ $$? = 77 ]; DAFS_WHEEL=$$wheel dist/debian/build

# RPM packages of the same, in target/rpm: needs rpmbuild (rpm on Debian, rpm-build on Fedora).
rpm:
	$(CARGO) build --release --quiet -p dafs-cli -p dafs-capi -p dafs-preload
	dist/rpm/build

# An OCI image of the server, in target/oci: a layout and an archive. Needs mmdebstrap, umoci and root,
# and no daemon.
image:
	$(CARGO) build --release --quiet -p dafs-cli
	dist/oci/build

# Image and RPM packages: built, started, used. As root; says what it cannot run, and why.
test-images:
	@dist/test-images || [ $$? = 77 ]

# The packages in a clean Debian with its own systemd: installed, used, upgraded, removed. As root.
test-packages:
	@dist/test-packages || [ $$? = 77 ]

# The README's own commands, typed into clean Debian systems with a clock: a clone and `make run`, then
# the packages and a directory that one user serves to another. As root; builds a release.
test-newcomer:
	@tests/newcomer/run || [ $$? = 77 ]
