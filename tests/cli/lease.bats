# Leases from a latency program to a batch program's kernels, through gbpfd.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

prepare() {
	"$GBPF" policy build "$REPO/tests/data/cli/leases.bpf.c" -o leases.bpf.o >/dev/null
	"$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" --kernel-us 3000 --blocks 200 \
		>train.out 2>&1 &
	runner=$!
	eventually grep -q ready train.out
	"$GBPF" policy swap leases.bpf.o >/dev/null
}

# notes NUMBER MIN: waits until the policy's counter of the number has reached MIN.
notes() { eventually shows "d['counters']['notes'][$1] >= $2" "$GBPF" policy show; }

# word: leases on the batch program's page now.
words() {
	python3 - <<'EOF'
import glob, mmap, os, struct, sys
for fd in glob.glob('/proc/[0-9]*/fd/*'):
	try:
		if 'gbpf-soft-flags' not in os.readlink(fd):
			continue
		if ('GBPF_RUNTIME_DIR=' + os.environ['GBPF_RUNTIME_DIR']) not in open(fd.rsplit('/', 2)[0] + '/environ').read().split('\0'):
			continue
		page = mmap.mmap(os.open(fd, os.O_RDONLY), 4096, mmap.MAP_SHARED, mmap.PROT_READ)
	except OSError:
		continue
	print(sum(w != 0 for w in struct.unpack('<64I', page[:256])))
	sys.exit()
sys.exit('no flag page')
EOF
}
nothing_stands() { [ "$(words)" = 0 ]; }

finish() {
	kill -TERM "$runner"
	wait "$runner" || true
	grep -q 'wrong 0' train.out
}

@test "requests stop the blocks of batch kernels, results stay right, and no lease is left" {
	prepare
	"$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 30 >web.out 2>&1 &
	local web=$!
	notes 0 1
	kill -TERM "$web"
	wait "$web"
	grep -q 'wrong 0' web.out
	eventually nothing_stands
	finish
}

@test "announced requests hold batch ahead of them" {
	prepare
	run "$GBPF" run --class latency --name web -- "$SAMPLES/hinted" 40 30
	[ "$status" -eq 0 ]
	[[ "$output" == *"wrong 0"* ]]
	notes 2 1
	eventually nothing_stands
	finish
}

@test "a latency program killed inside a request leaves no lease behind" {
	prepare
	"$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 1000 >web.out 2>&1 &
	eventually grep -q ready web.out
	notes 0 1
	for p in $(cli_processes); do
		case $(readlink "/proc/$p/exe") in */lcserve) kill -9 "$p" ;; esac
	done
	eventually nothing_stands
	finish
}
