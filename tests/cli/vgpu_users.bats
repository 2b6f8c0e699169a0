# Names of virtual GPUs are those of their owners: each user has its own, and others are USER/NAME.
load helper

VGPU=$BUILD/tests/system/vgpu

setup() {
	cli_setup
	[ "$(id -u)" -eq 0 ] || skip "needs root to become other users"
	user 65534 test -x "$GBPF" || skip "user 65534 cannot reach $GBPF"
	chmod 755 "$cli_dir" "$GBPF_RUNTIME_DIR"
	"$GBPF" run --device soft true
}

# user UID COMMAND...; as UID ARGUMENT...: gbpf as that user
user() { setpriv --reuid "$1" --regid "$1" --clear-groups "${@:2}"; }
as() { user "$1" "$GBPF" "${@:2}"; }

# has MIB COMMAND...: the shown virtual GPU has that limit
has() {
	run -0 "${@:2}" # settled: no other changes it
	echo "$output"
	[[ "$output" == *"memory      $1.0 MiB, "* ]]
}

fails() { # EXIT MESSAGE COMMAND...
	run "${@:3}"
	echo "$output"
	[ "$status" -eq "$1" ]
	[[ "$output" == *"$2"* ]]
}

both_have_web() {
	"$GBPF" -q vgpu create web --mem 64M
	as 65534 -q vgpu create web --mem 32M
}

@test "two users can have virtual GPUs of one name, and mean their own by it" {
	both_have_web
	fails 1 "there is a virtual GPU 'web' already" as 65534 vgpu create web
	has 64 "$GBPF" vgpu show web # settled: create, set and rm have returned
	has 32 as 65534 vgpu show web
	as 65534 -q vgpu set web --mem 48M
	has 64 "$GBPF" vgpu show web # settled: create, set and rm have returned
	has 48 as 65534 vgpu show web
	run -0 "$GBPF" --color never vgpu ls # settled: no other changes it
	echo "$output"
	[[ "$output" =~ web\ +root\ .*web\ +"$(id -nu 65534)"\  ]]
	as 65534 -q vgpu rm web
	has 64 "$GBPF" vgpu show web # settled: create, set and rm have returned
}

@test "root and others name the owner of a virtual GPU that is not theirs" {
	local owner verb
	as 65534 -q vgpu create web --mem 32M
	for verb in show "set --prio 3" rm "rm --drain"; do
		# shellcheck disable=SC2086 # several words
		fails 5 "there is no virtual GPU" "$GBPF" vgpu $verb web
		fails 5 "there is no virtual GPU" as 65533 vgpu $verb 65534/web
	done
	fails 125 "there is no virtual GPU 'web' for this user" "$GBPF" run --device soft --vgpu web -- true
	fails 125 "there is no virtual GPU '65534/web' for this user" as 65533 run --device soft --vgpu 65534/web -- true
	fails 5 "there is no user 'no.such.user'" "$GBPF" vgpu set no.such.user/web --prio 3
	fails 125 "there is no user 'no.such.user'" "$GBPF" run --vgpu no.such.user/web -- true
	fails 5 "there is no virtual GPU" "$GBPF" vgpu show 65533/web # settled: it was never made
	for owner in 65534 "$(id -nu 65534)"; do
		has 32 "$GBPF" vgpu show "$owner/web" # settled: create, set and rm have returned
	done
	run -0 "$GBPF" vgpu set 65534/web --prio 3
	[ "$output" = "65534/web: changed" ]
	run -0 "$GBPF" vgpu rm 65534/web
	[ "$output" = "65534/web: removed" ]
	fails 5 "there is no virtual GPU" as 65534 vgpu show web
}

@test "root's verbs never change what is not root's by a name alone" {
	both_have_web
	"$GBPF" -q vgpu set 65534/web --user root
	"$GBPF" -q vgpu rm web
	fails 5 "there is no virtual GPU" "$GBPF" vgpu rm web # a second time
	fails 5 "there is no virtual GPU" "$GBPF" vgpu set web --mem 16M
	has 32 as 65534 vgpu show web
}

@test "a name alone means the only virtual GPU that was opened to the user" {
	as 65534 -q vgpu create web --mem 32M
	as 65533 -q vgpu create web --mem 64M
	"$GBPF" -q vgpu set 65534/web --user 65532
	has 32 as 65532 vgpu show web
	run -0 as 65532 run --device soft --vgpu web -- sh -c 'echo "in $GBPF_VGPU"'
	[[ "$output" == *"in 65534/web" ]]
	"$GBPF" -q vgpu set 65533/web --user 65532
	fails 2 "several users have a virtual GPU 'web'. Name its owner, too: USER/NAME; \`gbpf vgpu ls\` lists them" as 65532 vgpu show web
	fails 125 "several users have a virtual GPU 'web'. Name its owner, too: USER/NAME" as 65532 run --device soft --vgpu web -- true
	has 64 as 65532 vgpu show 65533/web
	as 65532 -q vgpu create web --mem 48M
	has 48 as 65532 vgpu show web
}

@test "what gbpf run starts is in the virtual GPU that is meant, also as another user" {
	both_have_web
	"$GBPF" -q vgpu set web --user 65534
	run -0 --separate-stderr "$GBPF" run --device soft --vgpu web -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 64" ]
	run -0 --separate-stderr as 65534 run --device soft --vgpu web -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 32" ]
	run -0 --separate-stderr "$GBPF" run --device soft --vgpu 65534/web -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 32" ]
	run -0 --separate-stderr as 65534 run --device soft --vgpu root/web -- "$VGPU" serve <<<used
	[ "${lines[1]}" = "0 of 64" ]
	# The owner is stated to what runs as another user, too, who has a virtual GPU of this name.
	# A soft GPU is its user's: the other user's process reads what it would join.
	run -0 "$GBPF" run --device soft --vgpu web -- setpriv --reuid 65534 --regid 65534 --clear-groups sh -c 'echo "in $GBPF_VGPU"'
	[[ "$output" == *"in 0/web" ]]
}

@test "gbpf ps names the owner of a virtual GPU that is not its program's user's" {
	local fd
	both_have_web
	"$GBPF" -q vgpu set web --user 65534
	mkfifo in
	"$GBPF" run --device soft --vgpu web --name own -- "$VGPU" serve <in >own.out 2>&1 3>&- &
	as 65534 run --device soft --vgpu root/web --name other -- "$VGPU" serve <in >other.out 2>&1 3>&- &
	exec {fd}>in
	eventually grep -q . own.out
	eventually grep -q . other.out
	eventually eval '"$GBPF" --color never ps | grep " own " | grep -q " web "'
	eventually eval '"$GBPF" --color never ps | grep " other " | grep -q " root/web "'
	exec {fd}>&-
}

# vgpu_of NAME: what the column VGPU has in the row of that program, 4 characters of it
vgpu_of() {
	"$GBPF" --color never ps | awk -v name=" $1 " 'NR == 1 { at = index($0, " VGPU ") + 1 } index($0, name) { print substr($0, at, 4) }'
}

@test "gbpf ps shows no virtual GPU for another user's program that is in none" {
	local fd
	both_have_web
	mkfifo in
	"$GBPF" run --device soft --vgpu web --name inside -- "$VGPU" serve <in >inside.out 2>&1 3>&- &
	as 65534 run --device soft --name outside -- "$VGPU" serve <in >outside.out 2>&1 3>&- &
	exec {fd}>in
	eventually grep -q . inside.out
	eventually grep -q . outside.out
	eventually eval '[ "$(vgpu_of inside)" = "web " ]'
	eventually eval '[ "$(vgpu_of outside)" = "-   " ]'
	exec {fd}>&-
}

@test "completion offers virtual GPUs by the names that their user gives them" {
	both_have_web
	[ "$("$GBPF" completion words -- vgpu rm "" | sort)" = "$(printf '%s\tidle\n' "$(id -nu 65534)/web" web)" ] # settled: no program uses them
	[ "$(as 65534 completion words -- run --vgpu "")" = "web	idle" ] # settled: no program uses it
	[ -z "$("$GBPF" completion words -- vgpu create "")" ]
	run -0 "$GBPF" vgpu rm --help
	[[ "$output" == "Usage: gbpf vgpu rm [OPTIONS] [USER/]NAME"* ]]
}
