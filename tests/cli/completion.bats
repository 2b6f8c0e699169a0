# Completion: the words come from the table of verbs and from gbpfd; each shell's script asks gbpf for them.
load helper

words() { "$GBPF" completion words -- "$@" | cut -f 1; }

@test "every verb, option and choice is offered, with what it does" {
	"$GBPF" help --json | python3 -c 'import json,sys; [print(v["name"]) for v in json.load(sys.stdin)["verbs"]]' >verbs
	while read -r group verb; do
		if [ -z "$verb" ]; then words "" | grep -qx "$group"; else words "$group" "" | grep -qx "$verb"; fi
	done <verbs
	[ "$(words pol)" = policy ]
	[ "$(words policy sw)" = swap ]
	[ "$("$GBPF" completion words -- policy sw)" = "swap$(printf '\t')verify a policy, and swap it for the active one" ] ||
		"$GBPF" completion words -- policy sw | grep -q "swap.*[a-z]"
	[ "$(words run --class la)" = latency ]
	[ "$(words vgpu create --show "" | sort | paste -sd' ')" = "all mem" ]
	[ "$(words --json run --cla)" = --class ]
	[ "$(words run -c la)" = latency ]
	words policy check -- | grep -qx -- --explain || words policy check -- | grep -q .
	[ "$(words policy new --template ob)" = observe ]
	[ "$(words help po)" = policy ]
	[ "$(words run --class latency --)" != "$(words run --class latency -- "")" ]
	[ "$(words run -- "")" = :commands ]
	[ "$(words trace smmap -- "")" = :commands ]
	[ -z "$(words trace smmap "")" ]
	[ "$(words run true "")" = :files ]
	[ "$(words policy build "")" = ":files .bpf.c
:folders" ]
	[ "$(words policy swap lc)" = "lc_first
:files .o" ]
	[ "$(words policy swap examples/ml)" = "examples/mlfq
:files .o" ]
	[ "$(words policy swap ml)" = ":files .o" ]
	words policy test x "" | grep -qx ':files .scenario'
	[ -z "$(words nonsense "")" ] || words nonsense "" | grep -qx run
	run "$GBPF" completion tcsh
	[ "$status" -eq 2 ]
}

@test "while gbpfd starts or stops, completion offers nothing instead of waiting" {
	cp "$(command -v sleep)" gbpfd # by whose name a process is known
	./gbpfd 1000 3>&- &
	for state in starts stops; do
		echo "$! $state" >"$GBPF_RUNTIME_DIR/gbpfd.state"
		GBPF_PATIENCE=60 run -0 timeout 300 "$GBPF" completion words -- set "" # a verb waits 600 s
		[ -z "$output" ]
	done
	kill $!
}

@test "PIDs, versions, maps and virtual GPUs are those of gbpfd; without gbpfd there are none" {
	[ -z "$(words set "")" ]
	[ -z "$(words policy rollback "")" ]
	[ -z "$(words vgpu rm "")" ]
	"$GBPF" run --device soft --name web -- "$GBPF_PREFIX/lib/gbpf/samples/batch" --seconds 1000 >out 2>&1 &
	eventually grep -q ready out
	local pid
	pid=$(pid_of web)
	[ "$("$GBPF" completion words -- set "")" = "$pid	web" ]
	"$GBPF" policy load fifo
	"$GBPF" policy swap fair
	[ "$("$GBPF" completion words -- policy rollback "" | sort)" = "$("$GBPF" --json policy list | python3 -c '
import json, sys
for v in sorted(json.load(sys.stdin)["versions"], key=lambda v: v["version"]):
	print(v["version"], v["name"], sep="\t")')" ]
	words map dump "" | grep -q .
	"$GBPF" -q vgpu create train
	"$GBPF" -q vgpu create web
	[ "$(words vgpu rm tr)" = train ]
	[ "$(words vgpu set --mem 1G tr)" = train ]
	[ "$(words run --vgpu w)" = web ]
	[ -z "$(words vgpu create "")" ]
	kill "$pid"
}

@test "bash, zsh and fish offer these words" {
	touch my.bpf.c my.bpf.o my.scenario
	mkdir folder
	export PATH=$GBPF_PREFIX/bin:$PATH
	by_bash() {
		bash -c '. "$GBPF_PREFIX/share/bash-completion/completions/gbpf"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gbpf
			printf "%s\n" "${COMPREPLY[@]}"' bash gbpf "$@"
	}
	[ "$(by_bash pol)" = policy ]
	[ "$(by_bash run --class la)" = latency ]
	[ "$(by_bash policy swap lc)" = lc_first ]
	[ "$(by_bash policy build my)" = my.bpf.c ]
	[ "$(by_bash policy check fol)" = folder ]
	[ "$(by_bash policy test my)" = "my.bpf.o
my.scenario" ]
	by_bash run -- tru | grep -qx true
	# compsys needs a terminal: its functions are replaced by ones that print their arguments
	by_zsh() {
		zsh -f -c 'compdef() { :; }; _files() { print -r -- files "$@"; }; _command_names() { print commands; }
			_describe() { print -rl -- "${(@P)2}"; }
			source "$GBPF_PREFIX/share/zsh/vendor-completions/_gbpf"
			words=(gbpf "$@"); CURRENT=$#words; _gbpf' zsh "$@"
	}
	[[ "$(by_zsh pol)" == policy:* ]]
	[ "$(by_zsh run --class la)" = latency: ]
	[ "$(by_zsh policy check my)" = "files -g *.o" ]
	[ "$(by_zsh run -- tru)" = commands ]
	by_fish() { HOME=$cli_dir fish --no-config -c 'source "$GBPF_PREFIX/share/fish/vendor_completions.d/gbpf.fish"; complete -C "gbpf '"$*"'"'; }
	[[ "$(by_fish pol)" == "policy	"* ]]
	[ "$(by_fish run --class la)" = latency ]
	[ "$(by_fish policy check my | cut -f 1 | head -n 1)" = my.bpf.o ]
	by_fish run -- tru | cut -f 1 | grep -qx true
	for shell in bash zsh fish; do
		"$GBPF" completion "$shell" | $shell -n
	done
}
