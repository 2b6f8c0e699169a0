# gbpf policy test: scenarios with memory beyond the limit, its movement and launches that touch it.
load helper
load scenario_helper

setup() {
	cli_setup
	test_policies .
	mv faulting.bpf.o p.bpf.o
}

# memory_statements: three regions, of which the limit has room for two, and a link with simple rates: 64 MiB take
# 1 ms to the host and 2 ms back.
memory_statements() {
	cat <<-'S'
		vgpu v mem=512MiB swap=1GiB
		tenant a vgpu=v
		link out=64000MiB back=32000MiB in_place=16000MiB
		region x bytes=256MiB
		region y bytes=256MiB
		region z bytes=256MiB
	S
}

@test "regions: what does not fit lies on the host" {
	passes <<-'S'
		vgpu v mem=512MiB swap=1GiB
		tenant a vgpu=v
		link out=64000MiB
		region x bytes=256MiB
		region y of a bytes=255MiB
		expect device_bytes of a == 512MiB
		expect device_bytes of y == 256MiB
		expect host_bytes of a == 0
		expect now == 1s
		admit a
		expect mem_used == 512MiB
		region z bytes=256MiB
		expect host_bytes of x == 256MiB
		expect host_bytes of x of a == 256MiB
		expect device_bytes of z == 256MiB
		expect mem_out_bytes of a == 256MiB
		expect now == 1s + 4ms
		admit a
		expect mem_used == 512MiB
	S
	# Tenants of a vGPU share its limit; other memory and a full GPU leave less of it.
	passes <<-'S'
		vgpu v mem=512MiB used=64MiB swap=1GiB
		tenant a vgpu=v
		tenant b vgpu=v
		region x of a bytes=256MiB
		region x of b bytes=256MiB
		expect device_bytes of x of b == 192MiB
		expect host_bytes of x of b == 64MiB
		expect host_bytes of a == 0
		admit a
		expect mem_used == 512MiB
	S
	passes <<-'S'
		gpu mem=384MiB
		vgpu v mem=512MiB swap=1GiB
		tenant a vgpu=v
		region x bytes=512MiB
		expect device_bytes of x == 384MiB
		set answer = MEM_FETCH
		launch touches x
		expect FETCH room=128MiB missing=128MiB
		expect mem_back_bytes of a == 0
		expect mem_in_place of a == 1
	S
}

@test "launches that touch regions: memory comes back over the link, or is used in place" {
	{
		memory_statements
		cat <<-'S'
			set answer = MEM_FETCH
			launch touches x kernel=7 duration_ns=10ms
			expect FETCH kernel=7 bytes=256MiB missing=256MiB room=0 in_place_ns=16ms lost_ns=16ms move_ns=8ms
			expect ratio == 1000000000
			expect asked == 0
			expect note 7 == 1
			expect host_bytes of x == 0
			expect host_bytes of y == 256MiB
			expect mem_out_bytes of a == 512MiB
			expect mem_back_bytes of a == 256MiB
			expect mem_wait_ns of a == 9ms
			expect now == 1013ms
			expect done_ns of a == 1023ms
			launch a touches x
			expect verdict == -1
			expect missing == 0
			expect bytes == 256MiB
			expect mem_faults of a == 1
			set answer = MEM_IN_PLACE
			launch touches y, z duration_ns=10ms reads=2
			expect IN_PLACE bytes=512MiB missing=256MiB in_place_ns=32ms lost_ns=32ms
			expect done_ns of a == 1065ms
			launch touches y
			expect IN_PLACE in_place_ns=16ms lost_ns=48ms
			expect mem_in_place of a == 2
			expect mem_lost_ns of a == 48ms
			expect mem_wait_ns of a == 9ms
			expect done_ns of a == 1081ms
			set answer = MEM_HOLD
			set hold_ns = 30ms
			launch touches y
			expect HOLD held_ns=120ms asked=4
			expect now == 1133ms
			expect mem_in_place of a == 3
			set answer = MEM_FETCH
			set hold_ns = 2ms
			set until_ns = 5ms
			launch touches y
			expect FETCH held_ns=6ms asked=3
			expect mem_wait_ns of a == 154ms
			expect now == 1158ms
			expect host_bytes of x == 256MiB
			at done_ns of a
			expect now == 1158ms
		S
	} >all.scenario
	passes <all.scenario
	# Of a region that is larger than the limit, a launch names a GiB at most; the rest is used in place.
	passes <<-'S'
		vgpu v mem=1GiB swap=1GiB
		tenant a vgpu=v
		link in_place=16000MiB
		region x bytes=2GiB
		launch touches x
		expect verdict == -1
		expect mem_lost_ns of a == 64ms
		expect mem_in_place of a == 0
	S
	passes <<-'S'
		vgpu v mem=3GiB swap=3GiB
		tenant a vgpu=v
		region y bytes=2GiB
		region x bytes=2GiB
		set answer = MEM_FETCH
		launch touches y
		expect FETCH bytes=2GiB missing=1GiB
		expect mem_back_bytes of a == 1GiB
	S
}

@test "a fetch waits for the work of the tenant, and for as long as the policy says" {
	{
		memory_statements
		cat <<-'S'
			set answer = MEM_FETCH
			set drain_ns = 5ms
			launch touches z duration_ns=50ms
			launch touches x
			expect FETCH drain_ns=5ms
			expect now == 1009ms
			expect mem_back_bytes of a == 0
			expect done_ns of a == 1070ms
			at 1100ms
			launch touches x
			expect not FETCH
			expect mem_faults of a == 1
			at 1120ms
			launch touches x
			expect FETCH
			expect mem_back_bytes of a == 256MiB
			expect now == 1129ms
			launch touches y duration_ns=20ms
			set drain_ns = 0
			launch touches z, x
			expect FETCH drain_ns=1s
		S
	} >all.scenario
	passes <all.scenario
	# Nothing comes back if the host has no room for what would leave.
	passes <<-'S'
		vgpu v mem=512MiB swap=256MiB
		tenant a vgpu=v
		region x bytes=512MiB
		region y bytes=256MiB
		set answer = MEM_FETCH
		launch touches x
		expect FETCH missing=256MiB
		expect mem_back_bytes of a == 0
		expect mem_wait_ns of a == 0
	S
}

@test "a freed region leaves its room to others" {
	{
		memory_statements
		cat <<-'S'
			launch touches z duration_ns=16ms
			free z
			expect now == 1028ms
			expect host_bytes of a == 0
			expect mem_back_bytes of a == 256MiB
			admit a
			expect mem_used == 512MiB
			repeat 3 {
				region z of a bytes=64MiB
				free z of a
			}
			expect now == 1037ms
		S
	} >all.scenario
	passes <all.scenario
	# None beyond a limit that was lowered.
	{
		memory_statements
		cat <<-'S'
			vgpu v mem=384MiB
			free z
			expect device_bytes of a == 256MiB + 128MiB
			expect host_bytes of a == 128MiB
			vgpu v mem=128MiB
			free x
			expect device_bytes of a == 256MiB
		S
	} >all.scenario
	passes <all.scenario
	fails "got      0" <<-'S'
		vgpu v mem=512MiB swap=1GiB
		tenant a vgpu=v
		tenant b vgpu=v
		region x of a bytes=512MiB
		region x of b bytes=256MiB
		free x of a
		expect host_bytes of b == 256MiB
		expect device_bytes of b == 256MiB
	S
}

@test "failures and --verbose of launches" {
	{
		memory_statements
		printf 'launch touches y duration_ns=1ms\nexpect FETCH\nexpect mem_wait_ns of a == 5ms\nexpect done_ns of a == 1s\n'
	} >all.scenario
	fails "3 of 3 expectations failed" "got      no fault" "got      1005ms" "after    line 7: launch touches y" <all.scenario
	{
		memory_statements
		printf 'set answer = MEM_FETCH\nlaunch touches x kernel=7\n'
	} >s.scenario
	run "$GBPF" policy test -v p.bpf.o s.scenario
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"8  1.004000 s  a"*"mem_fault kernel=7 bytes=268435456 missing=268435456"*"-> FETCH"* ]]
	[[ "$output" == *"8  1.013000 s  a"*"launch out=268435456 back=268435456 wait_ns=9ms lost_ns=0 done_ns=1013ms"* ]]
}

@test "regions, links and launches that cannot be are refused" {
	local v=$'vgpu v mem=512MiB swap=64MiB\ntenant a vgpu=v\n'
	wrong 1 8 "there is no tenant yet" <<<'launch touches x'
	wrong 3 8 "which tenant" "launch TENANT touches" <<<$'tenant a\ntenant b\nlaunch touches x'
	wrong 2 8 "there is no tenant 'b'" <<<$'tenant a\nlaunch b touches x'
	wrong 2 9 "'touches' is needed" <<<$'tenant a\nlaunch a'
	wrong 2 18 "tenant 'a' has no region 'x'" "region NAME bytes=SIZE" <<<$'tenant a\nlaunch a touches x'
	wrong 4 16 "no region 'wieghts'" "Did you mean 'weights'?" <<<"${v}"$'region weights bytes=4MiB\nlaunch touches wieghts'
	wrong 4 19 "named twice" <<<"${v}"$'region x bytes=4MiB\nlaunch touches x, x'
	wrong 4 24 "not from 1 to 1000" <<<"${v}"$'region x bytes=4MiB\nlaunch touches x reads=0'
	wrong 4 18 "a launch has no 'bytes'" <<<"${v}"$'region x bytes=4MiB\nlaunch touches x bytes=1'
	wrong 2 8 "tenant 'a' is in no vGPU" "mem=SIZE swap=SIZE" <<<$'tenant a\nregion x bytes=4MiB'
	wrong 3 8 "has no limit" "vgpu NAME mem=SIZE" <<<$'vgpu v swap=1GiB\ntenant a vgpu=v\nregion x bytes=4MiB'
	wrong 3 9 "the size is needed" <<<"${v}region x"
	wrong 3 10 "a region has no 'size'" <<<"${v}region x size=4MiB"
	wrong 4 8 "a region 'x' already" <<<"${v}"$'region x bytes=4MiB\nregion x bytes=4MiB'
	wrong 3 13 "there is no tenant 'b'" <<<"${v}region x of b bytes=4MiB"
	wrong 3 8 "does not fit into the limit and the swap" "swap=SIZE" <<<"${v}region x bytes=1GiB"
	wrong 3 6 "has no region 'x'" <<<"${v}free x"
	wrong 5 16 "has no region 'x'" <<<"${v}"$'region x bytes=4MiB\nfree x\nlaunch touches x'
	wrong 1 10 "not from 268435456" <<<'link out=1MiB'
	wrong 1 6 "a link has no 'speed'" "There are: out, back, in_place" <<<'link speed=1GiB'
	wrong 2 22 "there is no tenant 'b'" <<<$'tenant a\nexpect mem_faults of b == 0'
	wrong 2 22 "has no region 'x'" <<<$'tenant a\nexpect host_bytes of x == 0'
	wrong 1 1 "Did you mean 'region'?" <<<'regionn x'
	wrong 5 8 "a helper failed" "not simulated" <<<"${v}"$'region x bytes=64MiB\nregion y bytes=512MiB\nlaunch touches x kernel=99'
	mv joining.bpf.o p.bpf.o
	wrong 4 8 "no program for mem_fault" "not simulated" <<<"${v}"$'region x bytes=4MiB\nlaunch touches x'
}
