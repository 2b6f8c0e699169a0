/* `gbpf trace`: tools that come with gBPF, each an object with programs inside kernels, and a
 * printer of what its maps say. Figures are made as JSON first; text is printed from that, so both
 * have the same. */
#ifndef GBPF_CLI_TRACE_H
#define GBPF_CLI_TRACE_H

#include "cli/connect.h"

#define CLI_TRACE_MAPS 7u
#define CLI_TRACE_KEY_WORDS 4u
#define CLI_TRACE_WHY 256u    /* a reason; gbpfd's are as long (PROTO_TEXT) */
#define CLI_TRACE_PLACES 512u /* tracers/sites.h; the last stands for all others of a program */
#define CLI_TRACE_ROWS 16384u /* of places of all programs, and the next two */
#define CLI_TRACE_UNKNOWN (CLI_TRACE_ROWS - 2) /* places whose program's list was not read */
#define CLI_TRACE_OTHERS (CLI_TRACE_ROWS - 1)  /* all others */

enum cli_trace_kind {
	CLI_TRACE_SUMS,
	/* What exists now: of several values for one entry the latest counts, and those of programs
	 * that have ended do not. */
	CLI_TRACE_STATES,
	/* For the tool's own pair() only. */
	CLI_TRACE_RAW,
	/* Sums that pair() makes; no map of the object. */
	CLI_TRACE_MADE,
	/* Of several values for one entry the highest counts. `lasting` has bit 0: an interval has
	 * those of the time before, too. */
	CLI_TRACE_MAXIMA,
	/* A hash table with counts. Its entries lie at places that trace_keys.c chooses: the words
	 * of the key, then the count, which is 0 where there is none. */
	CLI_TRACE_KEYED,
	/* Sums by place, which each program numbers by itself: the map has CLI_TRACE_PLACES
	 * entries, values have CLI_TRACE_ROWS (trace_rows.c). */
	CLI_TRACE_PLACED,
};

/* A map of a tool that is read: an array whose values are a number or a struct of numbers. */
struct cli_trace_map {
	const char *name;
	unsigned entries;
	const char *const *fields; /* of the struct, in the order of the words, NULL at the end */
	enum cli_trace_kind kind;
	unsigned time_word; /* of states: a time of the GPU; of keyed: the word of the count */
	uint32_t lasting;   /* bits of the words of sums that do not count: no difference is made */
	unsigned places;    /* of states: number of places; 0: no word is one */
	unsigned place_word; /* of states: a place */
	unsigned row_word;   /* of states: 1 + its row, which the map does not have */
	uint32_t living;     /* bits of those that end with the program */
};

/* What the maps of all programs that are traced say, added up. Entry k's word w of map m is
 * at[m][k * words + w]. */
struct cli_trace_values {
	uint64_t *at[CLI_TRACE_MAPS]; /* owned */
	uint64_t now_ns; /* time of the GPU when states were read; 0: there was none yet */
	uint64_t region_bytes;
	const struct cli_trace_names *names; /* borrowed */
	const struct cli_trace_rows *rows;   /* borrowed; of tools with places */
	uint64_t in_part;		     /* kernels that lack places of some programs */
	const char *why_in_part;	     /* borrowed; why one of them does; NULL: not known */
};

struct cli_trace_tool {
	const char *name; /* its object is tracers/NAME.bpf.o */
	const char *doc;
	const char *forms; /* of kernels that it can observe */
	const struct cli_trace_map *maps[CLI_TRACE_MAPS];
	/* Called when the maps of a program were read. NULL: none is needed. */
	void (*pair)(struct cli_trace_values *program);
	/* Returns an object. */
	json_t *(*figures)(const struct cli_trace_values *v);
	bool by_name; /* figures() asks for names of kernels; words 0 of map 0 are their hashes */
	bool by_address;	  /* figures of several programs are mixed */
	bool partial;		  /* kernels may run a part of the programs (GBPF_PROBE_PARTIAL) */
	const char *region_shift; /* constant of the object that --region sets; NULL: none */
	void (*print)(const struct cli *c, const json_t *figures);
};

/* trace_tools.c */
extern const struct cli_trace_tool *const cli_trace_tools[]; /* NULL at the end */
extern const struct cli_trace_tool cli_trace_args, cli_trace_atomhot, cli_trace_bankconf,
	cli_trace_barwait, cli_trace_blocktime, cli_trace_coalesce, cli_trace_hang,
	cli_trace_hotbranch, cli_trace_kernelretsnoop, cli_trace_launchlate, cli_trace_memtrace,
	cli_trace_regionheat, cli_trace_smmap, cli_trace_threadhist;
/* Prints the table of tools. Returns an exit code. */
int cli_trace_list(struct cli *c);
/* Finds a tool and reads its object. Returns CLI_OK, or an exit code after a message; the caller
 * finishes elf in either case. */
int cli_trace_find(struct cli *c, const char *name, const struct cli_trace_tool **ret,
		   struct buf *elf);

/* ---- trace_read.c ---- */

/* A program that has the tool. */
struct cli_trace_program {
	struct cli_trace_program *next;
	uint64_t tenant, pid;
	uint64_t connected_ns; /* when its session began, by gbpfd's clock */
	bool present;
	struct cli_trace_values now; /* as last read */
	uint64_t *placed; /* owned; of the map by place, as last read; NULL: the tool has none */
	uint32_t *row;	  /* owned; 1 + that of each place, or as trace_places.c says; NULL: none */
	unsigned places;
};

/* An attached tool. */
struct cli_trace {
	struct gbpf *g; /* owned */
	const struct cli_trace_tool *tool;
	uint64_t id;
	struct cli_trace_program *programs; /* owned */
	struct cli_trace_values gone;	    /* of programs that have ended */
	uint64_t n_gone;		    /* number of these, if they have figures */
	struct cli_trace_names *names;	    /* owned; of tools by name */
	struct cli_trace_rows *rows;	    /* owned; of tools with places */
	uint64_t region_bytes;		    /* of regionheat */
	uint64_t read_ns, newest_ns;	    /* when states were read; the latest time in them */
	uint64_t behind_ns;	   /* of the GPU's clock, at most: least age of the latest time */
	uint64_t kernels, waiting; /* as last read */
	/* The highest numbers that were read: gbpfd counts programs only while they run. */
	uint64_t kernels_max;		 /* kernels that ran it */
	uint64_t refused;		 /* kernels that could not run it */
	char why[CLI_TRACE_WHY];	 /* the last reason of a refusal */
	uint64_t unseen;		 /* instructions where the tool does not look */
	uint64_t falls_back;		 /* kernels some of whose launches ran without the tool */
	uint64_t in_part;		 /* kernels that ran a part of the tool */
	char why_in_part[CLI_TRACE_WHY]; /* the last reason */
	bool ended;			 /* gbpfd has detached it */
	bool absent;			 /* gbpfd did not answer the last reading */
	uint32_t generation;		 /* of the gbpfd that was read last; 0: none */
	uint64_t back_ns;		 /* when another one was found; 0: it is the first */
};

/* Has programs copy their maps, and reads these. Returns CLI_OK, also if the tool has ended or
 * gbpfd is absent, or an exit code after a message. */
int cli_trace_read(struct cli *c, struct cli_trace *t);
/* Reads a map of the tool from gbpfd, and calls take() with m for each of its entries that is not
 * all zero. Returns as cli_trace_read(). */
int cli_trace_read_entries(struct cli *c, struct cli_trace *t, const char *map, unsigned m,
			   void (*take)(struct cli_trace *t, unsigned m, const json_t *entry));
/* Returns the program with that tenant number; NULL: there is none. */
struct cli_trace_program *cli_trace_program(const struct cli_trace *t, uint64_t tenant);
/* Allocates and returns the values of all programs up to now, less `before` unless it is NULL.
 * false: no memory. */
bool cli_trace_sum(const struct cli_trace *t, const struct cli_trace_values *before,
		   struct cli_trace_values *ret);
bool cli_trace_any(const struct cli_trace_tool *tool, const struct cli_trace_values *v);
/* Returns whether the values of several programs, also of those that have ended, are added up. */
bool cli_trace_several(const struct cli_trace *t);
void cli_trace_values_finish(struct cli_trace_values *v);
/* Closes the connection, which detaches the tool. */
void cli_trace_finish(struct cli_trace *t);

/* ---- trace_document.c ---- */

/* Returns the document of --json; takes figures. kernel NULL: all. */
json_t *cli_trace_document(const struct cli_trace *t, const char *of, const char *kernel,
			   uint64_t ns, bool total, json_t *figures);

/* ---- trace_keys.c ---- */

/* Returns the words of an entry. */
unsigned cli_trace_words(const struct cli_trace_map *m);
/* Returns the entry with the key, which is made if there is room; NULL: there is none. */
uint64_t *cli_trace_keyed(const struct cli_trace_map *m, uint64_t *at, const uint64_t *key);
void cli_trace_keyed_add(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from);
void cli_trace_keyed_subtract(const struct cli_trace_map *m, uint64_t *to, const uint64_t *from);

/* ---- trace_names.c: names of kernels by their hashes ---- */

/* Asks gbpfd for the names of kernels of which the tool has figures, unless all are known. */
void cli_trace_names_read(struct cli_trace *t);
/* Returns the name of a kernel, or its hash as text in `room`. */
const char *cli_trace_name(const struct cli_trace_names *names, uint64_t hash, char room[24]);
void cli_trace_names_free(struct cli_trace_names *names);

/* ---- trace_places.c: the places of programs ---- */

/* Returns the number of places of a program that has the tool; 0: the tool has none. */
unsigned cli_trace_places(const struct cli_trace_tool *tool);
/* Rows of places without a line in the figures that were printed. */
struct cli_trace_rest {
	bool others, unknown; /* the last figures have such a row */
	bool was_unknown;     /* values of an interval were in the row unknown */
};
/* Notes the rows of figures: of the total, or of an interval. */
void cli_trace_rest_note(struct cli_trace_rest *rest, const json_t *figures, bool total);

/* Asks gbpfd for the places of which the tool has figures, unless all are known and it is not to be
 * asked again, and stores the figures by row. Returns as cli_trace_read(). */
int cli_trace_places_read(struct cli *c, struct cli_trace *t, bool again);

/* ---- trace_rows.c: lines of kernels, each of which has a row ---- */

/* Returns a number that may exceed JSON's integers, and is a text then. */
uint64_t cli_trace_number(const json_t *v);
struct cli_trace_rows *cli_trace_rows_new(void); /* NULL: no memory */
void cli_trace_rows_free(struct cli_trace_rows *rows);
/* Ends a list of places: source files are read anew for the next one. */
void cli_trace_rows_end_list(struct cli_trace_rows *rows);
/* Returns the row of a place: that of an equal one of any program, or a new one; that of others if
 * there is no room. value: of the map KERNEL_PLACES. */
unsigned cli_trace_row(struct cli_trace_rows *rows, const json_t *value);
/* Sets kernel, file, line (0: not known), site, source ("": not known), others and unknown of an
 * object. */
void cli_trace_row_json(json_t *to, const struct cli_trace_rows *rows, size_t row);
/* Returns whether an object of the array has the text of its line. */
bool cli_trace_any_source(const json_t *objects);
/* Append the columns KERNEL, LINE and, with source, SOURCE, and their cells for such an object. */
void cli_trace_row_columns(struct cli_table *t, bool source);
void cli_trace_row_cells(struct cli_table *t, const json_t *o, bool source);

/* ---- trace_source.c ---- */

#define CLI_TRACE_SOURCE_BYTES 128u
/* Source files as they were when a line of them was first asked for, 64 MiB in all. */
struct cli_trace_sources;
struct cli_trace_sources *cli_trace_sources_new(void); /* NULL: no memory */
void cli_trace_sources_free(struct cli_trace_sources *s);
/* Stores a line of a source file, from 1, without the blanks around it, its beginning if it is
 * longer; "" if it cannot be read or s is NULL. The file's name comes from a program, and neither
 * it nor the text is trusted: only printable characters are stored, only regular files of at most
 * 4 MiB are opened, and by root only those that every user may read, in folders that every user may
 * search. */
void cli_trace_source(struct cli_trace_sources *s, const char *file, uint64_t line,
		      char ret[CLI_TRACE_SOURCE_BYTES]);

/* ---- trace_draw.c ---- */

/* Returns part / whole, or 0. */
double cli_trace_ratio(uint64_t part, uint64_t whole);

/* Appends a cell with a bar. It must be in the last column. */
void cli_trace_bar(struct cli_table *t, uint64_t count, uint64_t max);

/* tracers/fine.h: 16 buckets for each power of two. */
#define CLI_FINE_BUCKETS 720u
/* Returns the bucket of a value. */
unsigned cli_fine_bucket(uint64_t v);
/* Returns {count, p50_ns, p90_ns, p99_ns, max_ns, buckets}, with a bucket for each power of two
 * that has values. Percentiles are the upper bounds of their fine buckets. max: the highest value;
 * it counts only as far as it agrees with the buckets. */
json_t *cli_trace_durations(const uint64_t *fine, uint64_t max);
/* Prints these as a table with bars, and the percentiles in a line: "40 blocks: P50 ...". */
void cli_trace_print_durations(const struct cli *c, const json_t *durations, const char *what);

/* ---- trace_sites.c ---- */

enum { CLI_SITE_COUNT, CLI_SITE_WORDS }; /* first in the struct of a site */

/* Returns an array with an object for each row that was executed: what cli_trace_row_json() sets,
 * count, and what add() adds from the words of the row. at: of a map of kind PLACED. */
json_t *cli_trace_sites(const struct cli_trace_rows *rows, const uint64_t *at, unsigned words,
			void (*add)(json_t *site, const uint64_t *words));
/* Prints those with the highest values of a member in a table that begins with KERNEL, LINE,
 * SOURCE if any is known, and COUNT; add() adds the cells under the other heads (NULL at the end),
 * with the highest value of the member among all. */
void cli_trace_print_sites(const struct cli *c, const json_t *sites, const char *member,
			   const char *const *heads,
			   void (*add)(struct cli_table *t, const json_t *site, uint64_t max));

/* ---- trace_regions.c ---- */

#define CLI_TRACE_REGIONS 65536u /* tracers/regions.h */
/* first in the struct of a region */
enum {
	CLI_REGION_COUNT,
	CLI_REGION_MIXED,
	CLI_REGION_OWNER,
	CLI_REGION_OWNERS,
	CLI_REGION_SQUARES,
	CLI_REGION_SPREAD,
	CLI_REGION_WORDS
};
#define CLI_REGION_LASTING                                                                         \
	(1u << CLI_REGION_OWNER | 1u << CLI_REGION_OWNERS | 1u << CLI_REGION_SQUARES)

/* Returns an array with an object for each region that was accessed, in the order of addresses:
 * address (a text), count, spread and what add() adds from its words. *ret_mixed: accesses in
 * places that several regions share, whose addresses are not known. */
json_t *cli_trace_regions(const uint64_t *at, unsigned words, uint64_t bytes,
			  void (*add)(json_t *region, const uint64_t *words), uint64_t *ret_mixed);
/* Prints the regions with the highest values of a member in a table that begins with ADDRESS and
 * COUNT; add() as of cli_trace_print_sites(). */
void cli_trace_print_regions(const struct cli *c, const json_t *regions, const char *member,
			     const char *const *heads,
			     void (*add)(struct cli_table *t, const json_t *region, uint64_t max));
/* Prints a line for each 64 neighbouring regions, with a character for the member of each. */
void cli_trace_draw_regions(const json_t *regions, const char *member, uint64_t bytes);
/* Prints what is not known exactly: accesses that were spread or mixed. */
void cli_trace_print_inexact(uint64_t spread, uint64_t mixed);

/* ---- trace_constant.c ---- */

/* Sets a constant of an object, a u32 in .rodata. Returns false if it has none of that name. */
bool cli_trace_constant(struct buf *elf, const char *name, uint32_t value);

#endif
