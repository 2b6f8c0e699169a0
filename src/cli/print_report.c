/* Prints reports of the loader, the verifier and the simulator: as text that begins with the file,
 * and as members of a document. */
#include <stdio.h>
#include <string.h>

#include "cli/policy_file.h"

/* A refusal is the requested result, so it goes to the same stream as an acceptance. */
void cli_print_report(struct cli *c, FILE *to, const char *file, const struct report *r)
{
	const char *detail = buf_text(&r->detail);
	const char *place = buf_text(&r->place);
	const char *name = cli_base_name(file);
	size_t len = strlen(name);
	bool placed = place[0] && strncmp(place, name, strlen(place)) != 0;

	fprintf(to, "%s%s%s ", cli_style(c->color_out, CLI_RED), CLI_SIGN_BAD,
		cli_style(c->color_out, CLI_PLAIN));
	cli_put_safe(to, file);
	if (placed && strncmp(place, name, len) == 0 && place[len] == ':') {
		fprintf(to, "%s: ", place + len); /* "x.scenario:7" already names the file */
	} else {
		fprintf(to, ": %s%s", placed ? place : "", placed ? ": " : "");
	}
	cli_put_safe(to, buf_text(&r->message));
	if (r->hint.len) {
		fputs(". ", to);
		cli_print_hint(to, buf_text(&r->hint));
	}
	fputc('\n', to);
	if (detail[0]) {
		cli_put_safe(to, detail);
		fputs(detail[strlen(detail) - 1] == '\n' ? "" : "\n", to);
	}
}

/* Splits the verifier's place "submit insn 7 (src/x.bpf.c:17)" into members. */
static void add_place(json_t *d, const char *place)
{
	char hook[32], file[512];
	unsigned insn, line;
	const char *paren = strrchr(place, '(');

	if (sscanf(place, "%31s insn %u", hook, &insn) == 2) {
		json_object_set_new(d, "hook", json_string(hook));
		json_object_set_new(d, "insn", json_integer(insn));
	}
	if (paren && sscanf(paren, "(%511[^:]:%u)", file, &line) == 2) {
		json_object_set_new(d, "source", json_string(file));
		json_object_set_new(d, "line", json_integer(line));
	}
}

/* The verifier's message "null: load: ..." begins with the rule. */
static void add_rule(json_t *d, const struct report *r)
{
	const char *message = buf_text(&r->message);
	size_t n = strcspn(message, ": ");

	if (strcmp(r->code, "verify") == 0 && message[n] == ':') {
		json_object_set_new(d, "rule", json_stringn(message, n));
	}
}

json_t *cli_report_json(const struct report *r)
{
	json_t *d = json_pack("{s:s, s:o, s:o, s:o, s:o}", "code", r->code, "place",
			      cli_json_text(buf_text(&r->place)), "message",
			      cli_json_text(buf_text(&r->message)), "hint",
			      cli_json_text(buf_text(&r->hint)), "detail",
			      cli_json_text(buf_text(&r->detail)));

	if (!d) {
		return json_pack("{s:s}", "code", r->code);
	}
	add_place(d, buf_text(&r->place));
	add_rule(d, r);
	return d;
}
