# Functions that the tests of the command line share. They run the installed tree in $GBPF_PREFIX, with runtime and state directories
# of their own, and end what they started.

bats_require_minimum_version 1.5.0

[ -n "$GBPF_PREFIX" ] && [ -x "$GBPF_PREFIX/bin/gbpf" ] || {
	echo "GBPF_PREFIX must name the installed tree" >&2
	exit 1
}
GBPF=$GBPF_PREFIX/bin/gbpf
REPO=$BATS_TEST_DIRNAME/../..
BUILD=${GBPF_BUILD:-$REPO/build}

cli_setup() {
	cli_dir=$(mktemp -d /tmp/gbpf-cli-XXXXXX)
	export GBPF_RUNTIME_DIR=$cli_dir/run GBPF_STATE_DIR=$cli_dir/state GBPF_CACHE=off
	unset LD_PRELOAD GBPF_REAL_CUDA GBPF_OFF GBPF_CLASS GBPF_NAME GBPF_WEIGHT GBPF_STRICT NO_COLOR
	mkdir -m 700 "$GBPF_RUNTIME_DIR" "$GBPF_STATE_DIR"
	cd "$cli_dir"
}

# Processes that carry our runtime directory in their environment: gbpfd, the soft GPU's server, forgotten programs.
cli_processes() {
	local f p
	for f in $(grep -lszx "GBPF_RUNTIME_DIR=$GBPF_RUNTIME_DIR" /proc/[0-9]*/environ); do
		p=${f#/proc/} p=${p%/environ}
		case $(readlink "/proc/$p/exe") in "$(readlink -f "$GBPF_PREFIX")"/*) echo "$p" ;; esac
	done
}

source "${BASH_SOURCE[0]%/*}/../wait.bash"

cli_teardown() {
	local p
	"$GBPF" -q shutdown >/dev/null 2>&1 || true
	for p in $(cli_processes); do
		kill "$p" 2>/dev/null || true
	done
	for p in $(cli_processes); do
		for _ in {1..250}; do
			has_exited "$p" && break
			sleep 0.02 # polls the state
		done
		has_exited "$p" && continue
		kill -9 "$p" 2>/dev/null || true
		eventually has_exited "$p" # it writes no file any more
	done
	end_virtual_time
	cd /
	rm -rf "$cli_dir"
}

setup() { cli_setup; }
teardown() { cli_teardown; }

# json EXPRESSION: evaluates a Python expression over d, the document in $output; its truth is the result.
json() {
	python3 -c 'import json,sys; d = json.loads(sys.argv[1]); sys.exit(0 if eval(sys.argv[2]) else 1)' "$output" "$1" ||
		{
			echo "not true: $1" >&2
			echo "$output" >&2
			return 1
		}
}

# test_policies FOLDER: copies the objects of tests/data/cli, which the build makes, there.
test_policies() { cp "$BUILD"/tests/cli/*.bpf.o "$1"; }
