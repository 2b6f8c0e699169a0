# Programs on the soft GPU as ps shows them and set changes them.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

# start CLASS NAME COMMAND...: in the background; returns when gbpfd counts its launches.
start() {
	"$GBPF" run --device soft --class "$1" --name "$2" -- "${@:3}" >"$2.out" 2>"$2.err" &
	runner=$!
	eventually tenant "$2" 't["stats"]["launches"] > 10'
}

# leaves NAME: gbpfd knows no program of the name any more.
leaves() { eventually shows "all(t['name'] != '$1' for t in d['tenants'])" "$GBPF" ps; }

@test "ps shows a program with its class, launches and policy" {
	start batch train "$SAMPLES/batch"
	local head='\A.*PID.*USER.*CLASS.*LANE.*LEVEL.*NAME.*LAUNCHES.*HELD.*P50.*P99.*POLICY.*COMMAND.*\n'
	eventually prints "$head"'.*batch +process +(-|hold) +train.*fair@[0-9]+' "$GBPF" ps
	eventually tenant train 't["class"] == "batch" and t["weight"] == 100 and t["policy_version"] > 0'
	run "$GBPF" device
	[[ "$output" == *" 1  fair@"* ]]
}

@test "docs/PROTOCOL.md names each member that ps sends" {
	start batch train "$SAMPLES/batch"
	eventually tenant train 't["kernels"] and t["stats"]["gpus"]'
	"$GBPF" ps --json >ps.json # settled: only the names count, and they are there
	run python3 - "$REPO/docs/PROTOCOL.md" <<-'PYTHON'
		import json, re, sys

		def names(value):
		    if isinstance(value, dict):
		        for name in value:
		            yield name
		            yield from names(value[name])
		    elif isinstance(value, list):
		        for v in value:
		            yield from names(v)

		section = open(sys.argv[1]).read().split('\n## Tenants\n')[1].split('\n## ')[0]
		sent = set(names(json.load(open('ps.json'))['tenants']))
		print(*sorted(sent - set(re.findall(r'\w+', section))))
	PYTHON
	echo "not named: $output"
	[ -z "$output" ]
}

@test "ps --why names the kernel and what was learned of it" {
	start batch train "$SAMPLES/batch"
	eventually tenant train 'len(t["kernels"]) > 0 and t["kernels"][0]["est_ns"] > 0'
	eventually prints '(?s)train \(.*\): .*LEARNED.*KERNEL.*service_step' "$GBPF" ps --why
}

# because NUMBER: a policy that holds each launch once, for this reason, is in force.
because() {
	cat >because.bpf.c <<-C
		#include <gbpf/gbpf.bpf.h>
		SEC("gbpf/submit") int GBPF_PROG(because, submit)
		{
			ctx->why = $1;
			ctx->hold_ns = 100000;
			return ctx->asked ? GBPF_GO : GBPF_DEFER;
		}
		GBPF_LICENSE("Apache-2.0");
	C
	"$GBPF" policy build because.bpf.c
	"$GBPF" policy swap because.bpf.o
}

@test "ps --why shows the reason that the policy sets, and infers none" {
	start batch train "$SAMPLES/batch"
	because GBPF_WHY_TURN
	eventually tenant train 't["why"] == "turn"'
	eventually prints 'last: the policy said HOLD: another program, group or vGPU has the turn, kernel' "$GBPF" ps --why
	because 1000007
	eventually tenant train 't["why"] == "reason 1000007"'
	eventually prints 'last: the policy said HOLD: reason 1000007, kernel' "$GBPF" ps --why
	because GBPF_WHY_NONE
	eventually tenant train 't["why"] == "policy"'
	eventually prints 'last: the policy said HOLD, kernel' "$GBPF" ps --why
}

# explaining TEXT: a policy that says this of each tenant, with its number and a quote, is in force.
explaining() {
	cat >explaining.bpf.c <<-C
		#include <gbpf/gbpf.bpf.h>
		SEC("gbpf/tick") int GBPF_PROG(explaining, tick)
		{
			u32 t;

			bpf_for (t, 0, ctx->tenants) {
				gbpf_explain(t, "$1 %u %c", t, 34);
			}
			return 0;
		}
		GBPF_LICENSE("Apache-2.0");
	C
	"$GBPF" policy build explaining.bpf.c
	"$GBPF" policy swap explaining.bpf.o
}

@test "ps --why shows what the policy that is in force says of a program" {
	start batch train "$SAMPLES/batch"
	eventually tenant train 't["explained"] == ""'
	explaining "the first of"
	eventually tenant train 't["explained"] == "the first of %d \"" % t["tenant"]'
	eventually prints '(?s)train \(.*\n  the policy: the first of [0-9]+ "\n' "$GBPF" ps --why
	explaining "the second of"
	eventually tenant train 't["explained"].startswith("the second of")'
	"$GBPF" policy swap fifo
	eventually tenant train 't["explained"] == ""'
	run "$GBPF" ps --why # settled: nothing is said of it any more
	[[ "$output" != *"the policy: "* ]]
}

@test "requests of a latency program have percentiles" {
	start latency web "$SAMPLES/lcserve" --requests 100000 --rate 200
	eventually tenant web 't["stats"]["requests"] > 5 and 0 < t["stats"]["request_p50_ns"] <= t["stats"]["request_p99_ns"]'
	eventually prints 'web .*[0-9] (µs|ms) ' "$GBPF" ps
	eventually tenant web 't["stats"]["request_ns"] >= t["stats"]["request_p50_ns"] and t["stats"]["busy_ns"] > 0'
	eventually prints '(?s)web \(.*requests open for [0-9.]+ (ms|s|min), work on the GPU for [0-9.]+ (µs|ms|s|min)' "$GBPF" ps --why
}

@test "set changes class and weight of what runs" {
	start batch train "$SAMPLES/batch"
	pid=$(pid_of train)
	run "$GBPF" set --class normal --weight 250 "$pid"
	[ "$status" -eq 0 ]
	[ "$output" = "$pid: class batch → normal, weight 100 → 250" ]
	eventually tenant train 't["class"] == "normal" and t["weight"] == 250'
	run "$GBPF" set --weight 300 "$pid"
	[ "$output" = "$pid: class normal, weight 250 → 300" ]
	run "$GBPF" --json set --weight 10 "$pid"
	json 'd["schema"] == "gbpf.set/1" and d["weight"] == 10 and d["class"] == "normal"'
}

@test "a program that ends leaves ps; its code comes back" {
	start batch train "$SAMPLES/batch"
	pid=$(pid_of train)
	kill -TERM "$runner"
	status=0
	wait $runner || status=$?
	echo "$status $(cat train.err)"
	[ "$status" -eq 0 ] || [ "$status" -eq 143 ]
	[ ! -e "/proc/$pid" ]
	leaves train
	eventually prints 'train.*ended' "$GBPF" events
}

@test "a program killed leaves ps, run gives 137" {
	start batch train "$SAMPLES/batch"
	kill -KILL "$(pid_of train)"
	status=0
	wait $runner || status=$?
	[ "$status" -eq 137 ]
	leaves train
}

@test "a swap while programs run says how many had it ready" {
	start batch train "$SAMPLES/batch"
	swapped() { # on a busy machine it may not be ready in time
		"$GBPF" policy swap lc_first >said
		grep -q '; 1 program had it ready' said || { "$GBPF" policy swap fair >/dev/null && false; }
	}
	eventually swapped
	eventually tenant train "t['policy_version'] == $("$GBPF" --json policy list | python3 -c 'import json, sys
print(json.load(sys.stdin)["active"])')"
}

@test "--off keeps a program out of gbpfd's sight, and it computes right" {
	"$GBPF" run --device soft true
	run "$GBPF" run --device soft --off -- "$SAMPLES/kernels" vecadd reduction
	echo "$output"
	[ "$status" -eq 0 ]
	run "$GBPF" --json events
	json 'not any("kernels" in e["text"] for e in d["events"])'
}

@test "the twelve kernels are right under gbpf run" {
	run "$GBPF" run --device soft -- "$SAMPLES/kernels"
	echo "$output"
	[ "$status" -eq 0 ]
}
