# Programs that say when their next request comes.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

# takes PROGRAM REQUESTS: the hint of each request is accepted.
takes() {
	virtual_time
	run "$GBPF" run --device soft --class latency -- "$1" "$2" 20
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" =~ "requests $2  hints taken "([0-9]+)"  "("last answer "(.*)"  ")?"wrong 0" ]]
	[ "${BASH_REMATCH[1]}" -eq "$2" ]
}

@test "a C program's hints reach the scheduler of a latency tenant" { takes "$SAMPLES/hinted" 30; }

@test "a Python program's hints do too" { takes "$SAMPLES/hinted.py" 20; }

@test "a batch tenant is refused with the reason" {
	run "$GBPF" run --device soft --class batch -- "$SAMPLES/hinted" 3 5
	[ "$status" -eq 0 ]
	[[ "$output" == *"hints taken 0  last answer Operation not permitted  wrong 0"* ]]
}

@test "without gBPF a hint is harmless" {
	run "$GBPF" run --device soft --class latency -- env GBPF_OFF=1 "$SAMPLES/hinted" 3 5
	[ "$status" -eq 0 ]
	[[ "$output" == *"hints taken 0  last answer No such file or directory  wrong 0"* ]]
}

@test "the rhythm of a whole process can be given by the environment, and a mistake there is said" {
	GBPF_HINT=period:20000 run "$GBPF" run --device soft --class latency -- "$SAMPLES/lcserve" --requests 5
	[ "$status" -eq 0 ]
	[[ "$output" != *GBPF_HINT* ]]
	GBPF_HINT=sometimes run "$GBPF" run --device soft --class latency -- "$SAMPLES/lcserve" --requests 5
	[ "$status" -eq 0 ]
	[[ "$output" == *"invalid GBPF_HINT 'sometimes'"*"period:MICROSECONDS"* ]]
}

@test "hints that make no sense are refused, whenever they come" {
	run "$GBPF" run --device soft --class latency -- python3 -c '
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def hint(*a):
    return cuda.gbpf_shim_hint(ctypes.c_uint64(a[0]), ctypes.c_uint64(a[1]), ctypes.c_int(a[2]))
most = 2 ** 64 - 1
print(hint(0, 0, -1), hint(most, 0, 0), cuda.cuInit(0))
print(hint(10000001, 0, 0), hint(most, most, 0), hint(0, most, 0), hint(0, 0, -2), hint(0, 0, 16), hint(0, 0, 2**31 - 1))
print(hint(10000000, 3600000000, 0), hint(0, 0, 15), hint(0, 1, -1))'
	echo "$output"
	[ "$status" -eq 0 ]
	[ "${lines[0]}" = "-2 -22 0" ]
	[ "${lines[1]}" = "-22 -22 -22 -22 -22 -22" ]
	[ "${lines[2]}" = "0 0 0" ]
}

@test "under auto a periodic client's rhythm is learned, unless it says off" {
	local periodic='
import sys
here = sys.argv.pop(1)
text = open(here).read()
assert "gbpf = load_gbpf()" in text  # the same client, but it calls no hint
exec(compile(text.replace("gbpf = load_gbpf()", "gbpf = None"), here, "exec"))'
	virtual_time
	"$GBPF" run --device soft -- true
	"$GBPF" policy swap auto
	"$GBPF" run --device soft --class latency --name learns -- python3 -c "$periodic" "$SAMPLES/hinted.py" 100000 20 3>&- &
	local learns=$!
	GBPF_HINT=off "$GBPF" run --device soft --class latency --name silent -- python3 -c "$periodic" "$SAMPLES/hinted.py" 100000 20 3>&- &
	local silent=$!
	eventually tenant learns 't["stats"]["hints"] >= 2'
	local launches
	launches=$(eventually gets '[t["stats"]["launches"] for t in d["tenants"] if t["name"] == "learns"][0]' "$GBPF" ps)
	eventually tenant silent "t['stats']['hints'] == 0 and t['stats']['launches'] > 2 * $launches"
	kill "$learns" "$silent"
	ended() { wait "$1" || [ $? = 143 ]; }
	ended "$learns"
	ended "$silent"
}
