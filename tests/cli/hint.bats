# Programs that say when their next request comes.
load helper

SAMPLES=$GBPF_PREFIX/lib/gbpf/samples

@test "a C program's hints reach the scheduler of a latency tenant" {
	run "$GBPF" run --device soft --class latency -- "$SAMPLES/hinted" 30 20
	[ "$status" -eq 0 ]
	[[ "$output" =~ "requests 30  hints taken "([0-9]+)"  last answer ok  wrong 0" ]]
	[ "${BASH_REMATCH[1]}" -ge 15 ]
}

@test "a Python program's hints do too" {
	run "$GBPF" run --device soft --class latency -- "$SAMPLES/hinted.py" 20 20
	[ "$status" -eq 0 ]
	[[ "$output" =~ "requests 20  hints taken "([0-9]+)"  wrong 0" ]]
	[ "${BASH_REMATCH[1]}" -ge 10 ]
}

@test "a batch tenant may not, and is told so" {
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
	[[ "$output" == *"GBPF_HINT=sometimes is not understood"*"period:MICROSECONDS"* ]]
}
