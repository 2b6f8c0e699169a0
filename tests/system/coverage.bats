#!/usr/bin/env bats
# Which kernels of running programs can be probed, and how, on the soft GPU.

load helpers
load talk

# covers FORM KERNEL LAUNCHES WHY: of the program $pid.
covers() {
	gbpf probe coverage "$pid" --json | python3 -c '
import json, re, sys
t = json.load(sys.stdin)["tenants"][0]
k = next(k for k in t["kernels"] if k["name"] == sys.argv[2])
print(k)
ok = t["answered"] and k["form"] == sys.argv[1] and k["launches"] == int(sys.argv[3]) and re.search(sys.argv[4], k["why"])
sys.exit(not ok)' "$@"
}

@test "a kernel with PTX, one with machine code that can be patched, and one that uses its module's variables" {
	begin
	start
	tell load "launch 3 10" "variables 2"
	covers ptx scale 3 '^$'
	covers ptx add 2 '^$'
	gbpf probe coverage "$pid" --json | python3 -c '
import json, sys
f = json.load(sys.stdin)["tenants"][0]["forms"]
sys.exit(f["ptx"]["launches"] != 5 or f["ptx"]["share"] != 1 or f["none"]["launches"])'
	start
	tell code "launch 2 5"
	covers stub scale 2 'linked by the driver'
	start
	tell both "variables 4"
	covers none add 4 'linked by the driver; entry stub: .*constants of the module'
	start
	tell stored "variables 1"
	covers ptx add 1 '^$'
	run gbpf probe coverage
	echo "$output"
	[[ "$output" == *" probed: none 100.0 % of launches"*"$pid probed: ptx 100.0 % of launches"* ]]
}
