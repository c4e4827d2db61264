package ingest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/examples/postgres/ingest"
)

// sized are types whose casts cut the value when its length or precision is
// left out, or might: a type, and an expression of g that makes a value of it.
var sized = []struct{ name, typ, value string }{
	{"char5", "char(5)", "'k' || g"},
	{"char5_domain", "code", "'k' || g"},
	{"bits", "bit(8)", "g::bit(8)"},
	{"varbits", "bit varying(8)", "g::bit(8)"},
	{"bare_bpchar", "bpchar", "'k' || g"},
	{"bare_bit", `pg_catalog."bit"`, "g::bit(8)"},
	{"vchar", "varchar(4)", "'k' || g"},
	{"num", "numeric(6,2)", "g"},
	{"stamp", "timestamp(3)", "timestamp '2024-01-01' + g * interval '1.5 ms'"},
	{"stampz", "timestamptz(0)", "timestamptz '2024-01-01' + g * interval '1 s'"},
	{"span", "interval(1)", "g * interval '1.1 s'"},
	{"chars", "char(3)[]", "ARRAY['k' || g, 'x']"},
	{"single", `"char"`, "(64 + g)::\"char\""},
}

// TestKeysOfASizedType: a row whose out-of-line value did not change is read
// again by its key, and a snapshot goes on behind a key. Neither may cut it.
func TestKeysOfASizedType(t *testing.T) {
	var schema strings.Builder
	schema.WriteString("CREATE DOMAIN code AS char(5);")
	for _, c := range sized {
		fmt.Fprintf(&schema, `CREATE TABLE %[1]s (k %[2]s, a int, big text, n int, PRIMARY KEY (k, a)); ALTER TABLE %[1]s ALTER big SET STORAGE EXTERNAL;
INSERT INTO %[1]s SELECT %[3]s, 1, repeat('w', 3000), 0 FROM generate_series(1, 20) g;`, c.name, c.typ, c.value)
	}
	p := newPipeline(t, schema.String())
	p.cfg.ChunkRows = 3
	p.start()
	p.answered(2)
	p.equal()
	for _, c := range sized {
		p.exec(`UPDATE ` + c.name + ` SET n = 1`)
	}
	p.equal()
}

// TestAnAlteredPrecisionIsSeeded: it changes every row, and the feed says nothing.
func TestAnAlteredPrecisionIsSeeded(t *testing.T) {
	p := newPipeline(t, `CREATE TABLE prices (id int PRIMARY KEY, n numeric(10,2)); INSERT INTO prices VALUES (1, 1.5)`)
	p.start()
	p.equal()
	p.exec(`ALTER TABLE prices ALTER n TYPE numeric(10,4)`)
	p.equal()
}

// TestASnapshotThatDoesNotGoForwardEnds, with an error that names the table. The
// operator hides the one that the key's order is by.
func TestASnapshotThatDoesNotGoForwardEnds(t *testing.T) {
	p := newPipeline(t, `CREATE TABLE loops (id int PRIMARY KEY, v text); INSERT INTO loops SELECT g, 'v' FROM generate_series(1, 20) g;
CREATE OPERATOR public.> (LEFTARG = int, RIGHTARG = int, FUNCTION = int4ge)`)
	p.exec(`ALTER DATABASE ` + p.cfg.Slot + ` SET search_path = public, pg_catalog`)
	p.cfg.ChunkRows = 1
	s := p.open()
	p.startSink(tablesSink)
	err := s.Run(t.Context(), p.stream)
	var stuck *ingest.SnapshotStuckError
	if !errors.As(err, &stuck) || stuck.Index != "public.loops" || stuck.ID != "1" {
		t.Fatalf("got %v, want a SnapshotStuckError of public.loops at 1", err)
	}
}
