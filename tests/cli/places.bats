# Users, places and GPUs that gBPF serves: a plain user, a container that shares the runtime directory, several GPUs.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples
as=()

# leaves NAME: gbpfd knows no program of the name any more.
leaves() { eventually shows "all(t['name'] != '$1' for t in d['tenants'])" "$GBPF" ps; }

# As root (in CI) the tests use an unprivileged user; otherwise the user that runs them is one.
become_plain() {
	[ "$(id -u)" = 0 ] || return 0
	as=(setpriv --reuid=65534 --regid=65534 --clear-groups env HOME=/nonexistent USER=nobody)
	chown -R 65534:65534 "$cli_dir"
	"${as[@]}" test -x "$GBPF" 2>/dev/null || skip "user 65534 cannot reach $GBPF, or setpriv is refused"
}

@test "a plain user has a gbpfd of its own with all levels, policies and requests" {
	echo "# ptrace_scope is $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 'not there')" >&3
	become_plain
	"${as[@]}" "$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" >train.out 2>&1 &
	eventually shows '[t for t in d["tenants"] if t["stats"]["launches"] > 10 and {"block", "slice", "off", "end"} <= set(t["levels"])]' \
		"${as[@]}" "$GBPF" ps
	"${as[@]}" "$GBPF" policy swap auto
	"${as[@]}" "$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 50 --requests 40 >web.out
	grep -q 'wrong 0' web.out
	eventually shows '[t for t in d["tenants"] if t["name"] == "train" and t["stats"]["holds"] + t["stats"]["interruptions"]]' \
		"${as[@]}" "$GBPF" ps
	run "${as[@]}" "$GBPF" doctor --device soft
	[ "$status" -eq 0 ]
	"${as[@]}" "$GBPF" -q shutdown
}

# contained COMMAND...: in pid, mount and (for a plain user) user namespaces of its own.
contained() {
	local user=()
	[ "$(id -u)" = 0 ] || user=(--user --map-root-user)
	unshare "${user[@]}" --mount --pid --fork --kill-child --mount-proc "$@"
}
need_containers() { contained true 2>/dev/null || skip "this machine lets nobody make namespaces"; }

@test "a program in a container shares the GPU with those outside, and its death is seen" {
	need_containers
	"$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" >train.out 2>&1 &
	eventually tenant train 't["stats"]["launches"] > 10'
	"$GBPF" policy swap auto
	contained "$GBPF" run --device soft --class latency --name web -- "$SAMPLES/lcserve" --rate 200 --requests 100000 >web.out 2>&1 &
	eventually tenant web 't["stats"]["requests"] > 20'
	eventually tenant train 't["stats"]["holds"] + t["stats"]["interruptions"] > 0'
	contained "$GBPF" doctor --device soft | grep -q 'namespace: gbpfd runs in another process namespace'
	[[ "$("$GBPF" doctor --device soft)" != *namespace:* ]]
	pid=$(pid_of web)
	killed "$pid" prints "web \(pid $pid\) was killed by signal 9" "$GBPF" events # our number of it
	leaves web
	eventually tenant train True
}

@test "gbpfd in a container serves programs outside" {
	need_containers
	contained "$GBPF_PREFIX/bin/gbpfd" --foreground --device soft --policy auto >gbpfd.out 2>&1 &
	eventually "$GBPF" -q status
	"$GBPF" run --device soft --class batch --name train -- "$SAMPLES/batch" >train.out 2>&1 &
	eventually tenant train 't["stats"]["launches"] > 10'
	"$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 50 --requests 40 >web.out
	grep -q 'wrong 0' web.out
	leaves web
	eventually tenant train 't["stats"]["holds"] + t["stats"]["interruptions"] > 0'
}

two_gpus() { export GBPF_SOFTGPU_OPTIONS='--gpus 2'; }

@test "latency requests on one GPU do not hold batch on the other" {
	two_gpus
	CUDA_VISIBLE_DEVICES=0 "$GBPF" run --device soft --class batch --name zero -- "$SAMPLES/batch" >zero.out 2>&1 &
	CUDA_VISIBLE_DEVICES=1 "$GBPF" run --device soft --class batch --name one -- "$SAMPLES/batch" >one.out 2>&1 &
	eventually tenant zero 't["stats"]["launches"] > 10'
	eventually tenant one 't["stats"]["launches"] > 10'
	"$GBPF" policy swap lc_first
	CUDA_VISIBLE_DEVICES=1 "$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 200 --requests 100 >web.out
	grep -q 'wrong 0' web.out
	eventually tenant one 't["stats"]["holds"] + t["stats"]["interruptions"] > 0'
	eventually tenant zero 't["stats"]["interruptions"] == 0'
}

# The program names its GPUs the other way round: what counts is which GPU it is, not the number that it has there.
@test "a program on both GPUs is felt on the one that it works on, whatever it calls it" {
	two_gpus
	CUDA_VISIBLE_DEVICES=0 "$GBPF" run --device soft --class batch --name zero -- "$SAMPLES/batch" >zero.out 2>&1 &
	eventually tenant zero 't["stats"]["launches"] > 10'
	CUDA_VISIBLE_DEVICES=1 "$GBPF" run --device soft --class batch --name one -- "$SAMPLES/batch" >one.out 2>&1 &
	eventually tenant one 't["stats"]["launches"] > 10'
	"$GBPF" policy swap lc_first
	eventually tenant zero 't["gpus"] == [0]'
	eventually tenant one 't["gpus"] == [1]'
	CUDA_VISIBLE_DEVICES=1,0 "$GBPF" run --class latency --name both -- python3 "$BATS_TEST_DIRNAME/two_gpus.py" 0 200
	eventually tenant one 't["stats"]["holds"] + t["stats"]["interruptions"] > 0'
	run "$GBPF" --json ps # settled: what zero must never show
	json '[t["stats"]["interruptions"] == 0 and t["why"] not in ("latency", "lease") for t in d["tenants"] if t["name"] == "zero"] == [True]'
	CUDA_VISIBLE_DEVICES=1,0 "$GBPF" run --class latency --name both -- python3 "$BATS_TEST_DIRNAME/two_gpus.py" 1 1000000 &
	eventually tenant zero 't["stats"]["interruptions"] > 0 or t["why"] in ("latency", "lease")'
}

@test "a level from outside switches off one GPU's work alone" {
	two_gpus
	cat >off_one.bpf.c <<-'C'
		#include <gbpf/gbpf.bpf.h>
		SEC("gbpf/preempt") int preempt(struct gbpf_preempt_ctx *ctx) { return GBPF_LEVEL_OFF; }
		char LICENSE[] SEC("license") = "GPL";
	C
	"$GBPF" policy build off_one.bpf.c -o off_one.bpf.o
	CUDA_VISIBLE_DEVICES=0 "$GBPF" run --device soft --class batch --name zero -- "$SAMPLES/batch" >zero.out 2>&1 &
	eventually tenant zero 't["stats"]["launches"] > 10'
	CUDA_VISIBLE_DEVICES=1 "$GBPF" run --device soft --class batch --name one -- "$SAMPLES/batch" >one.out 2>&1 &
	eventually tenant one 't["stats"]["launches"] > 10'
	"$GBPF" policy swap off_one.bpf.o
	CUDA_VISIBLE_DEVICES=1 "$GBPF" run --class latency --name web -- "$SAMPLES/lcserve" --rate 200 --requests 200 --iterations 20000 >web.out
	run "$GBPF" events
	echo "$output"
	[[ "$output" == *"one is stopped (off)"* ]]
	[[ "$output" != *"zero is stopped"* ]]
}
