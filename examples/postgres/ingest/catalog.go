package ingest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
)

// column is a column that the change feed carries: not dropped, not generated.
type column struct {
	name string
	oid  uint32
	typ  string // for casts: format_type with the length or precision, without which some casts cut the value
}

// table is what the catalog says of a table, or of a partitioned table as a
// whole: its partitions are not tables of their own here.
type table struct {
	oid          uint32
	schema, name string
	index        string
	partitioned  bool
	owned        bool     // we may add it to the publication
	columns      []column // in the table's order
	id           []int    // key columns, in the table's order: the document id
	page         []int    // key columns, in the key's order: reading page by page
	leaves       []uint32 // partitions that hold rows
	unusable     string   // why it is left out; empty for one that is taken
	shape        string   // changes when the documents of unchanged rows do
}

// from is the table in a FROM clause. A parent of old-style inheritance does
// not count its children's rows as its own, as in the change feed.
func (t *table) from() string {
	q := pgx.Identifier{t.schema, t.name}.Sanitize()
	if t.partitioned {
		return q
	}
	return "ONLY " + q
}

func (t *table) lock() string { return "LOCK TABLE " + t.from() + " IN ACCESS SHARE MODE" }

// names returns the names of the given columns.
func (t *table) names(columns []int) []string {
	out := make([]string, len(columns))
	for i, c := range columns {
		out[i] = t.columns[c].name
	}
	return out
}

// selectList casts nothing: values come in their text form anyway.
func (t *table) selectList(alias string) string {
	parts := make([]string, len(t.columns))
	for i, c := range t.columns {
		parts[i] = alias + pgx.Identifier{c.name}.Sanitize()
	}
	return strings.Join(parts, ", ")
}

// catalog is the tables of the source at one time.
type catalog struct {
	tables  []*table // sorted by index; usable ones only
	leftOut []*table
	byOID   map[uint32]*table // tables and their partitions, also those left out
	byIndex map[string]*table
}

const tablesQuery = `
SELECT c.oid, n.nspname::text, c.relname::text, c.relkind = 'p', c.relreplident::text,
  pg_has_role(c.relowner, 'MEMBER'), has_table_privilege(c.oid, 'SELECT'),
  ARRAY(SELECT a.attnum FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND %[1]s ORDER BY a.attnum),
  ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND %[1]s ORDER BY a.attnum),
  ARRAY(SELECT a.atttypid::bigint FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND %[1]s ORDER BY a.attnum),
  ARRAY(SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND %[1]s ORDER BY a.attnum),
  coalesce((SELECT ARRAY(SELECT k.attnum::smallint FROM unnest(i.indkey) WITH ORDINALITY AS k(attnum, n) WHERE k.n <= %[2]s ORDER BY k.n)
    FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
    AND CASE WHEN c.relreplident = 'i' THEN i.indisreplident ELSE i.indisprimary END LIMIT 1), '{}'),
  ARRAY(SELECT p.oid::bigint FROM pg_class p WHERE p.relispartition AND p.relkind = 'r'
    AND c.relkind = 'p' AND pg_partition_root(p.oid) = c.oid ORDER BY p.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
  AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_' AND ($1::bigint = 0 OR c.oid = $1::bigint)
ORDER BY 2, 3`

// loadTables reads the tables; only is one table's OID, or 0 for all.
func loadTables(ctx context.Context, q querier, only uint32) (*catalog, error) {
	rows, err := q.Query(ctx, fmt.Sprintf(tablesQuery, "a.attgenerated = ''", "i.indnkeyatts"), int64(only))
	if err != nil {
		return nil, fmt.Errorf("list the tables of the source: %w", err)
	}
	defer rows.Close()
	c := &catalog{byOID: make(map[uint32]*table), byIndex: make(map[string]*table)}
	for rows.Next() {
		var (
			t        table
			identity string
			readable bool
			nums     []int16
			names    []string
			typeIDs  []int64
			typs     []string
			key      []int16
			leaves   []int64
		)
		if err := rows.Scan(&t.oid, &t.schema, &t.name, &t.partitioned, &identity, &t.owned, &readable,
			&nums, &names, &typeIDs, &typs, &key, &leaves); err != nil {
			return nil, fmt.Errorf("list the tables of the source: %w", err)
		}
		t.index = indexName(t.schema, t.name)
		for i := range nums {
			t.columns = append(t.columns, column{names[i], uint32(typeIDs[i]), typs[i]})
		}
		for _, l := range leaves {
			t.leaves = append(t.leaves, uint32(l))
		}
		t.finish(identity, readable, nums, key)
		c.byOID[t.oid] = &t
		for _, l := range t.leaves {
			c.byOID[l] = &t
		}
		if t.unusable != "" {
			c.leftOut = append(c.leftOut, &t)
			continue
		}
		c.tables = append(c.tables, &t)
		c.byIndex[t.index] = &t
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list the tables of the source: %w", err)
	}
	slices.SortFunc(c.tables, func(a, b *table) int { return strings.Compare(a.index, b.index) })
	return c, nil
}

func (t *table) finish(identity string, readable bool, nums, key []int16) {
	for _, k := range key {
		i := slices.Index(nums, k)
		if i < 0 {
			t.unusable = "its key has a generated column, which the change feed does not carry"
			return
		}
		t.page = append(t.page, i)
	}
	t.id = slices.Sorted(slices.Values(t.page))
	switch {
	case len(key) == 0 && identity == "i":
		t.unusable = "REPLICA IDENTITY USING INDEX, but that index is gone"
	case len(key) == 0:
		t.unusable = "no primary key (or a deferrable one)"
	case identity == "n":
		t.unusable = "REPLICA IDENTITY NOTHING: deletes and updates could not be followed"
	case !readable:
		t.unusable = "this user may not SELECT from it"
	}
	if err := flusso.CheckIndex(t.index); t.unusable == "" && err != nil {
		t.unusable = err.Error()
	}
	var shape []byte
	for _, c := range t.columns {
		// The type with its length and precision: ALTER TYPE numeric(10,4)
		// rewrites every row, and the feed says nothing.
		shape = fmt.Appendf(shape, "%q %d %q\n", c.name, c.oid, c.typ)
	}
	sum := sha256.Sum256(fmt.Appendf(shape, "%v %v %d", t.names(t.id), t.leaves, t.oid))
	t.shape = hex.EncodeToString(sum[:6])
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// loadTypes reads how each type is turned into JSON. A domain counts as what
// it is over.
func loadTypes(ctx context.Context, q querier) (types, error) {
	rows, err := q.Query(ctx, `
WITH RECURSIVE base(oid, root) AS (
  SELECT oid, oid FROM pg_type WHERE typtype <> 'd'
  UNION ALL
  SELECT t.oid, b.root FROM pg_type t JOIN base b ON b.oid = t.typbasetype WHERE t.typtype = 'd')
SELECT base.oid, t.oid, CASE WHEN t.typcategory = 'A' AND t.typlen = -1 THEN t.typelem ELSE 0 END::oid, e.typdelim::text
FROM base JOIN pg_type t ON t.oid = base.root LEFT JOIN pg_type e ON e.oid = t.typelem`)
	if err != nil {
		return nil, fmt.Errorf("read the types of the source: %w", err)
	}
	defer rows.Close()
	ts := make(types)
	for rows.Next() {
		var oid, root, elem uint32
		var delim *string
		if err := rows.Scan(&oid, &root, &elem, &delim); err != nil {
			return nil, fmt.Errorf("read the types of the source: %w", err)
		}
		t := valueType{kind: baseKind(root)}
		if elem != 0 && root != oidInt2Vector && root != oidOIDVector && delim != nil {
			t = valueType{kind: kindArray, elem: elem, delim: (*delim)[0]}
		}
		ts[oid] = t
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the types of the source: %w", err)
	}
	return ts, nil
}

// errNoTable: a table is not there, or not one that can be followed.
var errNoTable = errors.New("no such table, or none with a usable key")
