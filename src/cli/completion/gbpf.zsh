#compdef gbpf
# zsh completion for gbpf; printed by `gbpf completion zsh`.
_gbpf()
{
	local line
	local -a found
	for line in ${(f)"$("$words[1]" completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)"}; do
		case $line in
		:commands) _command_names -e ;;
		:folders) _files -/ ;;
		:files) _files ;;
		':files '*) _files -g "*${line#* }" ;;
		*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		esac
	done
	((!$#found)) || _describe gbpf found
}
if [[ $funcstack[1] == _gbpf ]]; then
	_gbpf "$@"
else
	compdef _gbpf gbpf
fi
