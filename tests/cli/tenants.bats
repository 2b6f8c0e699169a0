# Programs on the soft GPU as ps shows them and set changes them.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

# start CLASS NAME COMMAND...: in the background; returns when gbpfd counts its launches.
start() {
	"$GBPF" run --device soft --class "$1" --name "$2" -- "${@:3}" >"$2.out" 2>"$2.err" &
	runner=$!
	eventually launches "$2"
}

# The document of ps, and an expression over t, the tenant of a name.
tenant() {
	"$GBPF" --json ps | python3 -c 'import json,sys
t = [t for t in json.load(sys.stdin)["tenants"] if t["name"] == sys.argv[1]]
if not t: sys.exit(1)
t = t[0]
r = eval(sys.argv[2])
if r is not True: print(r)
sys.exit(0 if r else 1)' "$1" "$2"
}

launches() { tenant "$1" 't.get("stats", {}).get("launches", 0) > 10'; }

@test "ps shows a program with its class, launches and policy" {
	start batch train "$SAMPLES/batch"
	run "$GBPF" ps
	[ "$status" -eq 0 ]
	[[ "${lines[0]}" == *PID*USER*CLASS*LANE*LEVEL*NAME*LAUNCHES*HELD*P50*P99*POLICY*COMMAND* ]]
	[[ "${lines[1]}" =~ batch\ +process\ +(-|hold)\ +train ]]
	[[ "${lines[1]}" =~ fair@[0-9]+ ]]
	tenant train 't["class"] == "batch" and t["weight"] == 100 and t["policy_version"] > 0'
	run "$GBPF" device
	[[ "$output" == *" 1  fair@"* ]]
}

@test "ps --why names the kernel and what was learned of it" {
	start batch train "$SAMPLES/batch"
	eventually tenant train 'len(t["kernels"]) > 0 and t["kernels"][0]["est_ns"] > 0'
	run "$GBPF" ps --why
	[ "$status" -eq 0 ]
	[[ "$output" == *"train ("*"): "* ]]
	[[ "$output" == *LEARNED*KERNEL*service_step* ]]
}

@test "requests of a latency program have percentiles" {
	start latency web "$SAMPLES/lcserve" --requests 100000 --rate 200
	eventually tenant web 't["stats"]["requests"] > 5 and 0 < t["stats"]["request_p50_ns"] <= t["stats"]["request_p99_ns"]'
	run "$GBPF" ps
	grep -qE 'web .*[0-9] (µs|ms) ' <<<"$output"
}

@test "set changes class and weight of what runs" {
	start batch train "$SAMPLES/batch"
	pid=$(tenant train 't["pid"]')
	run "$GBPF" set --class normal --weight 250 "$pid"
	[ "$status" -eq 0 ]
	[ "$output" = "$pid: class batch → normal, weight 100 → 250" ]
	tenant train 't["class"] == "normal" and t["weight"] == 250'
	run "$GBPF" set --weight 300 "$pid"
	[ "$output" = "$pid: class normal, weight 250 → 300" ]
	run "$GBPF" --json set --weight 10 "$pid"
	json 'd["schema"] == "gbpf.set/1" and d["weight"] == 10 and d["class"] == "normal"'
}

@test "a program that ends leaves ps; its code comes back" {
	start batch train "$SAMPLES/batch"
	pid=$(tenant train 't["pid"]')
	kill -TERM "$runner"
	status=0
	wait $runner || status=$?
	echo "$status $(cat train.err)"
	[ "$status" -eq 0 ] || [ "$status" -eq 143 ]
	[ ! -e "/proc/$pid" ]
	gone() { ! tenant train True; }
	eventually gone
	run "$GBPF" events
	[[ "$output" == *"train"*"ended"* ]]
}

@test "a program killed leaves ps, run gives 137" {
	start batch train "$SAMPLES/batch"
	kill -KILL "$(tenant train 't["pid"]')"
	status=0
	wait $runner || status=$?
	[ "$status" -eq 137 ]
	gone() { ! tenant train True; }
	eventually gone
}

@test "a swap while programs run says how many had it ready" {
	start batch train "$SAMPLES/batch"
	swapped() { # on a busy machine it may not be ready in time
		"$GBPF" policy swap lc_first >said
		grep -q '; 1 program had it ready' said || { "$GBPF" policy swap fair >/dev/null && false; }
	}
	eventually swapped
	in_force() { tenant train "t['policy_version'] == $("$GBPF" --json policy list | python3 -c 'import json, sys
print(json.load(sys.stdin)["active"])')"; }
	eventually in_force
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
