#!/usr/bin/env bats
# Shares and budgets of the GPU's time between processes, on a soft GPU in virtual time: kernels last as long as they state.

load helpers
load share_helpers

begin() { # POLICY
	virtual_time
	start_soft
	start_daemon
	gbpf policy swap "$1" >/dev/null
}

# share_of_time LEAST MOST: a's part, next to b, in percent.
share_of_time() { share busy_ns "$pid_a" "$pid_b" 400000000 "$@"; }

@test "two vGPUs use the GPU by their shares of its time, under vgpu_auto" {
	begin vgpu_auto
	spinner a 2 --compute 30
	spinner b 2 --compute 70
	share_of_time 27 33
}

@test "kernels of different durations do not change the shares" {
	begin vgpu_auto
	spinner a 4 --compute 50
	spinner b 1 --compute 50
	share_of_time 46 54
}

# actual NAME LEAST MOST: the share of a vGPU that gbpf vgpu ls shows as ACTUAL, in percent.
actual() {
	eventually shows "[$2 <= 100 * a['gpu_ns'] / a['window_ns'] <= $3 for v in d['vgpus'] if v['name'] == '$1' for a in v['actual']] == [True]" \
		gbpf vgpu ls
}

@test "gbpf vgpu ls shows the shares of vGPUs as they are" {
	begin vgpu_auto
	gbpf vgpu create small --compute 30 >/dev/null
	gbpf vgpu create idle --compute 20 >/dev/null
	spinner a 2 --vgpu small
	spinner b 2 --compute 50
	actual small 27 33
	eventually prints '\nidle .* 20 % +-  ' gbpf vgpu ls
	gbpf policy swap fifo >/dev/null
	actual small 45 100 # whatever it takes
	eventually prints '\nsmall .* 30 % +([4-9][0-9]|100) %  ' gbpf vgpu ls
	eventually prints '\nactual +([4-9][0-9]|100) % of GPU-[0-9a-f-]+ in the last [0-9.]+ s\n' gbpf vgpu show small
}

@test "a change of weights changes the shares, under fair" {
	begin fair
	spinner a 2 --weight 100
	spinner b 2 --weight 300
	share_of_time 23 27
	gbpf set "$pid_a" --weight 300 >/dev/null
	share_of_time 46 54 # each may be 4 ms ahead, and has up to 8 ms in flight, of 400 ms
}

@test "a vGPU without burst uses no more than its share of an idle GPU, and one with burst all of it" {
	begin vgpu_auto
	spinner a 5 --compute 30
	load_of "$pid_a"
	within 27 33
	gbpf vgpu create all --compute 30 --burst on >/dev/null
	kill "${pids[-1]}"
	spinner b 5 --vgpu all
	load_of "$pid_b"
	within 95 102
}
