# bash completion for gbpf; printed by `gbpf completion bash`.
_gbpf()
{
	local cur=${COMP_WORDS[COMP_CWORD]} lines line
	mapfile -t lines < <("${COMP_WORDS[0]}" completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
	COMPREPLY=()
	for line in "${lines[@]}"; do
		case $line in
		:commands) mapfile -O ${#COMPREPLY[@]} -t COMPREPLY < <(compgen -c -- "$cur") ;;
		:folders) mapfile -O ${#COMPREPLY[@]} -t COMPREPLY < <(compgen -d -- "$cur") ;;
		:files) mapfile -O ${#COMPREPLY[@]} -t COMPREPLY < <(compgen -f -- "$cur") ;;
		':files '*) mapfile -O ${#COMPREPLY[@]} -t COMPREPLY < <(compgen -f -X "!*${line#* }" -- "$cur"
			compgen -d -- "$cur") ;;
		*) COMPREPLY+=("${line%%$'\t'*}") ;;
		esac
	done
}
complete -o filenames -F _gbpf gbpf
