# gbpf policy test: the language of scenarios, its failures and its errors.
load helper
load scenario_helper

setup() {
	cli_setup
	test_policies .
	mv many_maps.bpf.o p.bpf.o
}

@test "decisions, fields, units, constants" {
	passes <<-'S'
		tenant a class=batch weight=50
		submit a inflight=4 kind=copy bytes=4KiB
		expect HOLD hold_ns=1ms kind=copy bytes==4096 weight=50 class_id=batch
		expect HOLD hold_ns>=1ms hold_ns<2ms level!=1
		expect not GO
		expect verdict == GBPF_HOLD
		expect hold_ns == 500us + 500us
		submit inflight=3
		expect GO
	S
}

@test "maps, members, keys of structs, text, queues, sums, variables of tenants" {
	passes <<-'S'
		tenant a
		tenant b
		submit a queue=3 kind=1 bytes=10 priority=-5
		submit a queue=3 kind=1 bytes=20 priority=-6
		submit b queue=1 bytes=7
		expect map table[{a=3, b=1}] of a {n=20 last=-6 last<0 name="p" pair.a=3}
		expect map table[{a=3, b=1}] of b absent
		expect count table of a == 1
		expect map line[0] of a == 10
		expect map line[1] of a == 20
		expect map line[2] of a absent
		expect count line of a == 2
		expect map sums[1] of a == 30
		expect map mine of b == now
		wait 5ms
		expect map mine of b == now - 5ms
		tick
		tick
		expect map total == 4
		expect map clocks[0] == now
		expect note 2 == 3
		expect errors == 0
		expect map limit == 3
	S
}

@test "rings give records in the order of the events" {
	passes <<-'S'
		tenant a
		tenant b
		submit b bytes=1
		submit a bytes=2
		submit b bytes=3
		expect ring ring {n=1}
		expect ring ring {n=2 name="p"}
		expect ring ring {n>2}
		expect ring ring empty
	S
	fails "no record" <<-'S'
		tenant a
		expect ring ring {}
	S
}

@test "set writes what the policy reads" {
	passes <<-'S'
		tenant a
		set total = 40
		tick
		expect map total == 41
		set table[{a=1, b=2}] = {n=5, name="x"}
		expect map table[{a=1, b=2}] {n=5 last=0 name="x"}
		set table[{a=1, b=2}].last = -3
		expect map table[{a=1, b=2}] {n=5 last=-3}
	S
	wrong 2 5 constant <<<$'tenant a\nset limit = 9'
}

@test "admit changes the tenant" {
	passes <<-'S'
		tenant a class=latency uid=0
		admit a
		expect ADMIT weight=7
		submit a
		expect weight == 7
		tenant b uid=5
		admit b
		expect REJECT
	S
}

@test "loops, variables, random numbers with a seed" {
	passes <<-'S'
		tenant a
		seed 3
		let x = random(1, 1000000)
		seed 3
		let y = random(1, 1000000)
		expect x == y
		repeat 3 as i {
			repeat 4 as j {
				submit bytes=i * 10 + j inflight=random(0, 3)
				expect GO bytes=i*10+j
				let last = i * 10 + j
			}
		}
		expect last == 23
		repeat 0 {
			expect x == 0
		}
		expect note 2 == 12
	S
}

@test "a failure is reported with line, expectation, observed value and preceding event" {
	fails "3 of 4 expectations failed" "line 3: expect HOLD hold_ns=2ms" "expected HOLD hold_ns=2ms" \
		"got      HOLD hold_ns=1ms" "after    line 2: submit inflight=9" "line 4" "got      20" "no such element" <<-'S'
		tenant a
		submit inflight=9 bytes=20
		expect HOLD hold_ns=2ms
		expect map line[0] == 21
		expect map line[3] == 21
		expect HOLD
	S
	fails "and 9 more times" <<-'S'
		tenant a
		repeat 10 {
			submit
			expect HOLD
		}
	S
	run "$GBPF" --json policy test p.bpf.o s.scenario
	[ "$status" -eq 1 ]
	json 'd["schema"] == "gbpf.policy.test/1" and not d["scenarios"][0]["ok"]'
	json 'd["scenarios"][0]["failures"][0]["times"] == 10 and d["scenarios"][0]["failures"][0]["line"] == 4'
}

@test "words that are not known are refused before anything runs, with a suggestion" {
	wrong 1 1 "Did you mean 'tenant'?" <<<'tenat a'
	wrong 1 10 "Did you mean 'weight'?" <<<'tenant a wieght=5'
	wrong 2 8 "no tenant 'b'" <<<$'tenant a\nsubmit b'
	wrong 2 8 "Did you mean 'lc_open'?" <<<$'tenant a\nsubmit lc_opne=1'
	wrong 2 13 "kernel, copy" <<<$'tenant a\nsubmit kind=cpy'
	wrong 3 8 "Did you mean 'HOLD'?" <<<$'tenant a\nsubmit\nexpect HODL'
	wrong 3 13 "no field 'hold'" <<<$'tenant a\nsubmit\nexpect HOLD hold=1'
	wrong 2 12 "Did you mean 'table'?" <<<$'tenant a\nexpect map tabel[1] == 1'
	wrong 2 12 "Did you mean 'limit'?" <<<$'tenant a\nexpect map limt == 1'
	wrong 2 18 "{u32 a, u32 b}" <<<$'tenant a\nexpect map table[7] == 1'
	wrong 3 12 "of TENANT" <<<$'tenant a\ntenant b\nexpect map mine == 1'
	wrong 2 19 "'byts'" "struct seen" <<<$'tenant a\nexpect ring ring {byts=1}'
	wrong 2 6 "Units are" <<<$'tenant a\nwait 1y'
	wrong 2 8 "already" <<<$'tenant a\ntenant a'
	wrong 1 9 "'{' is needed" <<<'repeat 3'
	wrong 1 1 "no end" <<<'repeat 3 {'
	wrong 1 1 "no block" <<<'}'
	wrong 1 8 "nothing has happened" <<<'expect GO'
	wrong 3 8 "no program for retire" <<<$'tenant a\nretire\nexpect verdict == 0'
	wrong 1 13 "0 to 15" <<<'expect note 16 == 0'
	wrong 3 8 "'=' is needed" <<<$'tenant a\nsubmit a\ntick ab'
	wrong 2 14 "does not fit 'tenants'" <<<$'tenant a\ntick tenants=1025'
	passes <<<$'tenant a\ntick tenants=1024'
	wrong 2 6 "no name of a tenant" "HOOK field=value" <<<$'tenant a\ntick a'
	wrong 2 18 "a number is needed" "For example" <<<$'tenant a\nsubmit a hold_ns='
	wrong 2 8 "without a blank" "Write 3ms" <<<$'tenant a\nwait 3 ms'
	wrong 2 18 "without a blank" "Write 4KiB" <<<$'tenant a\nsubmit a bytes=4 KiB'
	wrong 2 10 "no field 'inflght'" "Did you mean 'inflight'?" <<<$'tenant a\nsubmit a inflght=3'
	wrong 2 10 "no field 'zzzzzz'" "There are: now_ns, kernel, est_ns" <<<$'tenant a\nsubmit a zzzzzz=3'
	wrong 3 11 "no field 'inflght'" "Did you mean 'inflight'?" <<<$'tenant a\nsubmit\nexpect GO inflght=3'
	wrong 1 10 "a tenant has no 'zzz'" "There are: class, weight" <<<'tenant a zzz=3'
	wrong 2 8 "no statistic 'zzzzz'" "There are: busy_ns" <<<$'tenant a\nstat a zzzzz=3'
}

@test "an open latency request leaves no idle time" {
	passes <<-'S'
		tenant a
		submit
		expect lc_idle_ns == -1
		submit lc_open=1
		expect lc_idle_ns == 0
		submit lc_open=1 lc_idle_ns=0
		expect lc_idle_ns == 0
		submit lc_idle_ns=5ms
		expect lc_idle_ns == 5ms
	S
	wrong 2 10 "contradict" "Omit lc_idle_ns" <<<$'tenant a\nsubmit a lc_open=1 lc_idle_ns=5ms'
}

@test "how a launch is stopped, and its waves, follow from each other" {
	mv outside.bpf.o p.bpf.o
	passes <<-'S'
		tenant a
		submit blocks=100
		expect GO block_ok=0 stop=none resident=0 waves=0 persistent=0 gate=default
		submit blocks=100 block_ok=1 block_ns=1ms
		expect GO stop=clone gate=default
		submit blocks=101 stop=machine_code resident=20
		expect GO level=block block_ok=1 waves=6 persistent=0 gate=default
		submit blocks=60 stop=machine_code resident=20
		expect GO level=block waves=3 gate=flag_first
		submit blocks=20 stop=machine_code resident=20
		expect GO level=block waves=1 persistent=1 gate=off
	S
	wrong 2 10 "stop and block_ok contradict" "Omit block_ok" <<<$'tenant a\nsubmit a block_ok=2 stop=clone'
	wrong 2 10 "resident and waves contradict" "Omit waves" <<<$'tenant a\nsubmit a blocks=9 resident=3 waves=2'
	wrong 2 10 "resident and persistent contradict" "Omit persistent" <<<$'tenant a\nsubmit a persistent=1'
	wrong 2 10 "does not fit 'stop'" "machine_code" <<<$'tenant a\nsubmit a stop=3'
}

@test "time does not go back, and endless loops end" {
	wrong 2 4 "does not go back" <<<$'at 2s\nat 1s'
	cat >s.scenario <<<$'repeat 1000000000 {\nrepeat 1000000000 {\nlet x = 1\n}\n}'
	run "$GBPF" policy test p.bpf.o s.scenario
	[ "$status" -eq 1 ]
	[[ "$output" == *"more than 10000000 steps"* ]]
}

@test "--verbose prints each decision" {
	printf 'tenant a\nwait 2ms\nsubmit inflight=9\nadmit\nretire\n' >s.scenario
	run "$GBPF" policy test -v p.bpf.o s.scenario
	echo "$output"
	[ "$status" -eq 0 ]
	[[ "$output" == *"1.002000 s  a"*"submit inflight=9 -> HOLD hold_ns=1ms"* ]]
	[[ "$output" == *"admit -> ADMIT weight=7"* ]]
	[[ "$output" == *"retire -> (built in)"* ]]
}

@test "files that are no policy or no scenario are unusable" {
	echo 'tenant a' >s.scenario
	echo text >t.bpf.o
	run "$GBPF" policy test t.bpf.o s.scenario
	[ "$status" -eq 1 ]
	run "$GBPF" policy test p.bpf.o nosuch.scenario
	[ "$status" -eq 1 ]
	head -c 1000 /dev/urandom >r.scenario
	run "$GBPF" policy test p.bpf.o r.scenario
	[ "$status" -eq 1 ]
	run "$GBPF" policy test nosuchpolicy s.scenario
	[ "$status" -eq 5 ]
	run "$GBPF" policy test p.bpf.o
	[ "$status" -eq 2 ]
	run "$GBPF" policy test verdict.bpf.o s.scenario
	[ "$status" -eq 4 ]
	[[ "$output" == "✗ verdict.bpf.o: submit insn"* ]]
}

@test "conditions: only the block of one that holds runs" {
	passes <<-'S'
		tenant a
		let n = 0
		repeat 10 as i {
			submit a inflight=i
			if GO {
				let n = n + 1
			}
			if not GO {
				expect HOLD
				if i % 2 == 1 {
					let n = n + 100
				}
			}
		}
		expect n == 304
	S
	wrong 2 4 "nothing has happened yet" <<<$'tenant a\nif GO {\n}'
	wrong 3 4 "Did you mean 'HOLD'" <<<$'tenant a\nsubmit a\nif HOLT {\n}'
	wrong 2 10 "'{'" <<<$'tenant a\nif 1 == 1\n}'
	wrong 2 1 "no end" <<<$'tenant a\nif 1 == 1 {\nsubmit a'
}

@test "lanes, levels, pieces: the inputs and outputs of admit, submit and preempt" {
	mv outside.bpf.o p.bpf.o
	passes <<-'S'
		tenant web class=latency
		tenant train class=batch
		tenant crowd class=batch lane=shared
		admit web
		expect ADMIT lane=process sm_percent=100 slice_us=1000000 latency_tenants=0 batch_tenants=2 cpu_weight=100
		admit train lanes=3
		expect ADMIT lane=shared sm_percent=40 batch_tenants=1 latency_tenants=1
		expect slice_us of train == 200
		expect lane of train == LANE_SHARED
		expect lane of web == LANE_PROCESS
		submit train block_ok=1 block_ns=2us blocks=1000
		expect SPLIT split_blocks=64 level=block lane=shared lc_next_ns=-1
		submit train block_ok=1 block_ns=2us blocks=10
		expect GO level=block
		submit train block_ok=1 block_ns=80us
		expect GO level=hold
		submit train lc_next_ns=500us
		expect HOLD
		submit train deadline_ns=5ms
		expect HOLD
		preempt crowd for_tenant=web
		expect NONE
		preempt crowd for_tenant=web lane=process waited_ns=2ms
		expect SLICE tried=none class_id=batch levels==39
		preempt crowd for_tenant=web lane=process tried=slice
		expect OFF
		preempt crowd for_tenant=9 lane=process
		expect NONE
	S
	wrong 2 22 "'nobody' is neither" <<<$'tenant a\npreempt a for_tenant=nobody'
}

@test "statistics are what the scenario says, and slices and stops what the policy asked for" {
	mv outside.bpf.o p.bpf.o
	passes <<-'S'
		tenant web class=latency
		tenant train class=batch lane=shared levels=63
		stat train busy_ns=5ms open=1 deadline_ns=3s threads=77
		expect level of train == LEVEL_NONE
		expect slice_us of train == 0
		tick
		expect map seen[0] == 5ms
		expect map seen[STAT_OPEN] == 1
		expect map seen[STAT_DEADLINE_NS] == 3s
		expect map seen[STAT_THREADS] == 77
		expect map seen[STAT_LANE] == 1
		expect slice_us of train == 1
		expect level of train == LEVEL_OFF
		expect level of web == LEVEL_NONE
		stat train open=0
		tick
		expect level of train == LEVEL_HOLD
		expect map seen[0] == 5ms
		expect note 0 == 2
		expect note 1 == 2
		expect errors == 2
	S
	passes <<-'S'
		tenant web class=latency
		tenant train class=batch levels=7
		stat train open=1
		tick
		expect slice_us of train == 0
		expect level of train == LEVEL_NONE
		preempt train for_tenant=web
		expect levels == 7
	S
	wrong 2 8 "there is no statistic 'bussy_ns'" "Did you mean 'busy_ns'" <<<$'tenant a\nstat a bussy_ns=1'
	wrong 2 6 "there is no tenant 'b'" <<<$'tenant a\nstat b busy_ns=1'
	wrong 2 8 "lane is a property of the tenant" "tenant NAME lane=" <<<$'tenant a\nstat a lane=1'
	wrong 2 8 "uid is a property of the tenant" <<<$'tenant a\nstat a uid=1'
	wrong 2 20 "there is no tenant 'b'" <<<$'tenant a\nexpect slice_us of b == 1'
}

@test "rejoin: admit for a tenant that runs; only weight and slice apply" {
	mv joining.bpf.o p.bpf.o
	passes <<-'S'
		tenant a weight=50
		rejoin a
		expect ADMIT rejoin=1 lanes=1
		expect map joined == 100
		expect weight of a == 100
		expect slice_us of a == 300
		expect class_id of a == CLASS_NORMAL
		expect lane of a == LANE_PROCESS
		rejoin a
		expect weight == 100
		expect weight of a == 100
		admit a lanes=3
		expect ADMIT rejoin=0 weight=100
		expect class_id of a == CLASS_BATCH
		expect lane of a == LANE_SHARED
		rejoin a
		expect ADMIT lanes=2
		tenant b uid=13
		rejoin b
		expect ADMIT
		expect weight of b == 200
		admit b
		expect REJECT
		tenant c uid=14
		rejoin c nice=5
		expect ADMIT nice=5
	S
	wrong 2 1 "there is no statement 'rejion'" "Did you mean 'rejoin'" <<<$'tenant a\nrejion a'
	wrong 1 8 "there is no tenant 'b'" <<<'rejoin b'
}

@test "the user id reaches submit, retire, preempt and the statistics" {
	mv joining.bpf.o p.bpf.o
	passes <<-'S'
		tenant a uid=7
		tenant b uid=8
		submit a
		expect HOLD
		submit b
		expect GO
		retire b
		expect linger_ns == 8
		preempt a for_tenant=b
		expect OFF
		preempt b for_tenant=a
		expect NONE
		tick
		expect map uid_of_stat == 7
	S
}

@test "what a policy says of a tenant" {
	cat >e.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		long none;
		SEC("gbpf/tick") int GBPF_PROG(e_tick, tick)
		{
			if (ctx->epoch > 1) {
				gbpf_explain(1, "held for %llu us, # %d times", 1500ull, -3);
			}
			none = gbpf_explain(2, "nothing") + gbpf_explain(1ull << 40, "nothing");
			return 0;
		}
	END
	"$GBPF" policy build e.bpf.c
	mv e.bpf.o p.bpf.o
	passes <<-'END'
		tenant a
		tenant b
		expect explained of b == ""
		repeat 3 {
			tick
		}
		expect explained of a == ""
		expect explained of b == "held for 1500 us, # -3 times"
		expect explained of b != "held"
		expect map none == -4
	END
	fails 'explained of b == "held for 1500 us"' 'got      held for 1500 us, # -3 times' <<-'END'
		tenant a
		tenant b
		repeat 3 {
			tick
		}
		expect explained of b == "held for 1500 us"
	END
	wrong 2 23 'no tenant' <<-'END'
		tenant a
		  expect explained of nobody == "x"
	END
	wrong 2 27 'a text is compared with == or !=' <<-'END'
		tenant a
		  expect explained of a < "x"
	END
	wrong 2 28 'a text is compared with == or !=' <<-'END'
		tenant a
		  expect explained of a == "x
	END
}

# What the program learns of vGPUs, by contexts, helper and standard map.
@test "vGPUs reach contexts, the standard maps and gbpf_tenant_vgpu" {
	cat >v.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		GBPF_STANDARD_MAP(VSLICE_SET);
		GBPF_STANDARD_MAP(MEMPOOL);
		GBPF_STANDARD_MAP(PLACEMENT);
		s64 place_of_0;
		SEC("gbpf/admit") int GBPF_PROG(v_admit, admit) { return ctx->compute < 30 ? GBPF_ADMIT : GBPF_QUEUE; }
		SEC("gbpf/submit") int GBPF_PROG(v_submit, submit) { return ctx->vgpu == 1 ? GBPF_HOLD : GBPF_GO; }
		SEC("gbpf/tick") int GBPF_PROG(v_tick, tick)
		{
			u32 place = 0;
			struct gbpf_vslice_set *v = bpf_map_lookup_elem(&VSLICE_SET, &place);

			place_of_0 = gbpf_tenant_vgpu(0);
			if (v) {
				v->slice_us = 9;
			}
			return 0;
		}
	END
	"$GBPF" policy build v.bpf.c
	mv v.bpf.o p.bpf.o
	passes <<-'END'
		vgpu small compute=20 prio=3 mem=2GiB
		vgpu large compute=70 copy=50 burst=1
		tenant free
		tenant a vgpu=small lane=shared
		tenant b vgpu=large
		submit b
		expect HOLD vgpu == 1
		submit a
		expect GO vgpu = small
		submit free
		expect GO vgpu == GBPF_VGPUS
		submit free vgpu=large
		expect HOLD
		admit a
		expect ADMIT compute == 20 prio == 3 mem_limit == 2GiB burst == 0
		admit b
		expect QUEUE copy == 50 burst == 1
		expect map VSLICE_SET[0] {compute_pct=20 priority=3 tenants=1 flags=1}
		expect map VSLICE_SET[1] {compute_pct=70 flags=3}
		expect map VSLICE_SET[2].flags == 0
		expect map MEMPOOL[0].limit_bytes == 2GiB
		expect map PLACEMENT[0].lanes == 2
		tick
		expect map place_of_0 == 64
		expect map VSLICE_SET[0].slice_us == 9
		vgpu small compute=40
		expect map VSLICE_SET[0] {compute_pct=40 slice_us=9 priority=3}
		admit a
		expect QUEUE
		expect errors == 0
	END
	wrong 2 8 "a vGPU has no 'cmopute'" "compute" <<<$'vgpu x\nvgpu x cmopute=3'
	wrong 1 16 "not from 0 to 100" <<<'vgpu x compute=101'
	wrong 1 15 <<<'tenant a vgpu=nosuch'
}

# A policy that admits a program once its reservation is free, as gbpfd would ask it.
@test "the memory of the GPU reaches admit" {
	cat >v.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		SEC("gbpf/admit") int GBPF_PROG(v_admit, admit)
		{
			if (ctx->rejoin || !ctx->mem_size) {
				return GBPF_ADMIT;
			}
			return ctx->mem_used + ctx->mem_free < ctx->mem_reserve ? GBPF_QUEUE : GBPF_ADMIT;
		}
	END
	"$GBPF" policy build v.bpf.c
	mv v.bpf.o p.bpf.o
	passes <<-'END'
		vgpu sure reserve=5GiB
		vgpu large used=4GiB
		tenant a vgpu=sure
		tenant free
		admit a
		expect ADMIT mem_size == 0 mem_free == 0
		gpu mem=8GiB
		admit a
		expect QUEUE mem_size == 8GiB mem_free == 4GiB
		admit free
		expect ADMIT mem_size == 8GiB mem_free == 4GiB
		rejoin a
		expect ADMIT mem_free == 4GiB
		admit a mem_free=5GiB
		expect ADMIT
		vgpu sure used=1GiB
		admit a
		expect QUEUE mem_used == 1GiB mem_free == 3GiB
		vgpu large used=3GiB
		admit a
		expect ADMIT mem_used == 1GiB mem_free == 4GiB
		vgpu sure used=0
		vgpu large used=9GiB
		admit a
		expect QUEUE mem_free == 0
	END
	wrong 1 5 "a GPU has no 'size'" mem <<<'gpu size=3'
	wrong 2 20 "ready is greater than ranks" <<<$'tenant a\ncollective_phase a ready=3'
	wrong 3 9 "mem_free is greater than mem_size" <<<$'tenant a\ngpu mem=1GiB\nadmit a mem_free=2GiB'
}

@test "each GPU has an instance of the policy, and its own tenants and ticks" {
	passes <<-'S'
		gpu gpus=2 mem=8GiB
		tenant a number=3
		tenant b number=3 gpu=1
		tenant c gpu=1 class=batch
		wait 2ms
		tick gpu=1
		expect tenants == 4
		expect active == 2
		expect epoch == 0
		expect period_ns == 2ms
		tick gpu=1
		expect epoch == 1
		expect period_ns == 0
		tick gpu=0
		expect tenants == 4
		expect active == 1
		expect epoch == 0
		expect period_ns == 2ms
		expect map total on 0 == 1
		repeat 2 as g {
			expect map clocks[0] on g == now
			expect map clocks[1] on g == now * g
		}
		expect map total on 1 == 4
		set total on 1 = 50
		expect map total on 0 == 1
		expect map total on 1 == 50
		expect map limit == 3
		submit a queue=1 kind=1 bytes=7
		expect gpu == 0
		submit c gpu=1 bytes=8
		expect gpu == 1
		expect map table[{a=1, b=1}] of b absent
		expect ring ring {n=7}
		expect ring ring {n=8}
		admit a uid=0
		expect ADMIT tenants == 0 batch_tenants == 0 mem_size == 8GiB gpu == 0
		admit b uid=0
		expect ADMIT tenants == 1 batch_tenants == 1 gpu == 1
		expect note 2 == 2
		gpu gpus=3
		tenant d gpu=2
		tick gpu=2
		expect active == 1
		expect epoch == 0
		expect period_ns == 0
		expect map total on 2 == 1
	S
	fails "map total on 1 == 1" <<-'S'
		gpu gpus=2
		tenant a
		tick gpu=0
		expect map total on 1 == 1
	S
	wrong 1 10 "not from 1 to 16" <<<'gpu gpus=17'
	wrong 1 10 <<<'gpu gpus=0'
	wrong 2 5 "there are 3 GPUs already" <<<$'gpu gpus=3\ngpu gpus=2'
	wrong 1 8 "there is no GPU 1" "gpu gpus=N" <<<'tenant a gpu=1'
	wrong 3 8 "there is a tenant 'a' already" <<<$'gpu gpus=2\ntenant a\ntenant a gpu=1'
	wrong 2 5 "it does not say on which GPU" "gpu=N" <<<$'gpu gpus=2\ntick'
	wrong 2 6 "there is no GPU 2" <<<$'gpu gpus=2\ntick gpu=2'
	wrong 3 10 "tenant 'a' is on GPU 0" <<<$'gpu gpus=2\ntenant a\nsubmit a gpu=1'
	wrong 2 12 "every GPU has its own 'total'" "on GPU" <<<$'gpu gpus=2\nexpect map total == 0'
	wrong 2 21 "there is no GPU 2" <<<$'gpu gpus=2\nexpect map total on 2 == 0'
	wrong 3 12 "every tenant has its own 'mine'" "of TENANT" <<<$'gpu gpus=2\ntenant a\nexpect map mine on 1 == 0'
}

@test "a map of all GPUs is one" {
	cat >v.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		struct {
			__uint(type, GBPF_MAP_HASH);
			__uint(max_entries, 4);
			__uint(map_flags, GBPF_F_DAEMON | GBPF_F_ALL_GPUS);
			__type(key, u32);
			__type(value, u64);
		} active SEC(".maps");
		u64 others;
		SEC("gbpf/tick") int GBPF_PROG(v_tick, tick)
		{
			u32 gpu = ctx->gpu, other = 1 - gpu;
			u64 n = ctx->active, *at = bpf_map_lookup_elem(&active, &other);

			bpf_map_update_elem(&active, &gpu, &n, BPF_ANY);
			others = at ? *at : 0;
			return 0;
		}
	END
	"$GBPF" policy build v.bpf.c
	mv v.bpf.o p.bpf.o
	passes <<-'END'
		gpu gpus=2
		tenant a
		tenant b gpu=1
		tenant c gpu=1
		tick gpu=0
		tick gpu=1
		expect count active == 2
		expect map active[1] == 2
		expect map others on 0 == 0
		expect map others on 1 == 1
		tick gpu=0
		expect map others on 0 == 2
		set active[0] = 50
		tick gpu=1
		expect map others on 1 == 50
	END
}

# The policy has statistics of tenants by their numbers: those of the GPU that it runs for.
@test "an instance sees the tenants of its GPU alone" {
	cat >v.bpf.c <<-'END'
		#include <gbpf/gbpf.bpf.h>
		GBPF_LICENSE("Apache-2.0");
		GBPF_STANDARD_MAP(PLACEMENT);
		GBPF_STANDARD_MAP(VSLICE_SET);
		u64 busy;
		s64 class_of_5;
		SEC("gbpf/tick") int GBPF_PROG(v_tick, tick)
		{
			busy = gbpf_tenant_stat(3, GBPF_STAT_BUSY_NS);
			class_of_5 = gbpf_tenant_class(5);
			bpf_printk("%d", ctx->gpu);
			gbpf_slice_set(5, 1000);
			return 0;
		}
	END
	"$GBPF" policy build v.bpf.c
	mv v.bpf.o p.bpf.o
	passes <<-'END'
		gpu gpus=2
		vgpu v compute=50
		tenant a number=3 vgpu=v
		tenant b number=3 vgpu=v gpu=1
		tenant c number=5 vgpu=v gpu=1 class=batch
		stat a busy_ns=1ms
		stat b busy_ns=2ms
		tick gpu=0
		tick gpu=1
		expect map busy on 0 == 1ms
		expect map busy on 1 == 2ms
		expect map class_of_5 on 0 == -2
		expect map class_of_5 on 1 == GBPF_CLASS_BATCH
		expect slice_us of c == 1000
		expect map PLACEMENT[0].gpus on 0 == 3
		expect map PLACEMENT[0].gpus on 1 == 3
		expect map VSLICE_SET[0].tenants on 0 == 2
		gpu gpus=3
		expect map VSLICE_SET[0].compute_pct on 2 == 50
	END
	[[ "$output" == *"gbpfd on 0 "*"gbpfd on 1 "* ]]
}

@test "a queue from tenants to tick" {
	mv reporting.bpf.o p.bpf.o
	passes <<-'S'
		tenant a
		tenant b number=7
		submit a blocks=3
		submit b blocks=4
		submit b blocks=5
		expect count reports of b == 2
		tick
		expect map seen == 3
		expect map blocks == 12
		expect map strange == 0
		expect map last_error == 2
		expect count reports of b == 0
		repeat 20 as i {
			submit a blocks=i
			expect GO
		}
		tick
		expect map seen == 11
		expect map blocks == 12 + 12 + 13 + 14 + 15 + 16 + 17 + 18 + 19
		expect errors == 0
	S
}
