package ingest_test

import (
	"strings"
	"testing"
)

const zoo = `
CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"', 'happy');
CREATE DOMAIN positive AS numeric(20,4) CHECK (VALUE > 0);
CREATE TABLE kinds (
  id bigint PRIMARY KEY, b boolean, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, n numeric, d positive,
  t text, v varchar(40), c char(5), j json, jb jsonb, ba bytea, u uuid, ts timestamp, tz timestamptz, da date, ti time, iv interval,
  inet inet, m mood, moods mood[], ia int[], ta text[], na numeric[], nested int[][], r int4range, mny money, p point, boxes box[], x xml,
  bits bit(4), lsn pg_lsn, v2 int2vector, gen bigint GENERATED ALWAYS AS (id * 2) STORED, "Weird ""Col" text);
CREATE TABLE composite (a int, b text, c date, v text, PRIMARY KEY (b, a, c));
CREATE TABLE texts (k text PRIMARY KEY, v text);
CREATE TABLE nokey (v text);
CREATE SCHEMA "Odd.Schema";
CREATE TABLE "Odd.Schema"."Table/with*signs" ("K" int PRIMARY KEY, v text);
CREATE TABLE parts (id int, at int, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
CREATE TABLE parts_low PARTITION OF parts FOR VALUES FROM (0) TO (100);
CREATE TABLE parts_high (v text, at int NOT NULL, gone int, id int NOT NULL);
ALTER TABLE parts_high DROP COLUMN gone, ADD PRIMARY KEY (id, at);
ALTER TABLE parts ATTACH PARTITION parts_high FOR VALUES FROM (100) TO (200);
CREATE TABLE wide (id int PRIMARY KEY, n int, big text);
ALTER TABLE wide ALTER big SET STORAGE EXTERNAL;
CREATE TABLE whole (id int PRIMARY KEY, n int, big text);
ALTER TABLE whole ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL;
CREATE TABLE byindex (id int NOT NULL, other text NOT NULL, v text);
CREATE UNIQUE INDEX byindex_other ON byindex (other);
ALTER TABLE byindex REPLICA IDENTITY USING INDEX byindex_other;
CREATE TABLE emptied (id int PRIMARY KEY, v text);
CREATE TABLE parent (id int PRIMARY KEY, v text);
CREATE TABLE child (w text, PRIMARY KEY (id)) INHERITS (parent);
`

// fill writes the same kinds of rows twice: once for a snapshot to read, once
// for the feed to carry.
func fill(p *pipeline, round int) {
	p.t.Helper()
	p.exec(`INSERT INTO kinds VALUES ($1, true, -3, 7, 9007199254740993, 1.5, 'NaN', '1e30', 12.3400,
  E'line\n"quoted" \\ tab\t\u2028 \u00fc \U0001F600 \x01', '<&>', 'ab', '{"a": [1, 2 ], "b":"\u0000"}', '{"z": 1.10, "a": null}', '\xdeadbeef',
  'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29 23:59:59.123456', '2024-02-29 23:59:59.123456+05:30', '0044-03-15 BC', '13:00', '1 year 2 days 03:04:05',
  '10.0.0.0/8', 'it''s "ok"', '{sad,"it''s \"ok\"",NULL}', '{1,NULL,3}', '{"a,b","NULL",NULL,"q\"q","\\",""}', '{1.10,NaN}', '{{1,2},{3,4}}', '[1,5)', '12.34', '(1,2)',
  '{(1,1),(0,0);(2,2),(1,1)}', '<a>b</a>', B'1010', '16/B374D848', '1 2 3', DEFAULT, 'w')`, round)
	p.exec(`INSERT INTO kinds (id, f8, n, ia) VALUES ($1, '-Infinity', 'NaN', '[0:2]={5,6,7}')`, round+10)
	p.exec(`INSERT INTO composite VALUES ($1, 'x,y', '2024-01-01', 'one'), ($1, '', '2024-01-02', 'two'), ($1, '100%', '2024-01-02', NULL)`, round)
	for _, k := range []string{"plain", "a/b", "", "tab\there", "ünï\u0085", "*", "~", "%00", ",", "100%", strings.Repeat("long/", 200)} {
		p.exec(`INSERT INTO texts VALUES ($1, $2)`, strings.Repeat("r", round)+k, "v")
	}
	p.exec(`INSERT INTO nokey VALUES ('never seen')`)
	p.exec(`INSERT INTO "Odd.Schema"."Table/with*signs" VALUES ($1, 'odd')`, round)
	p.exec(`INSERT INTO parts VALUES ($1, 10, 'low'), ($1, 150, 'high')`, round)
	p.exec(`INSERT INTO wide VALUES ($1, 1, repeat('w', 20000)), ($1 + 10, 1, repeat('x', 20000))`, round)
	p.exec(`INSERT INTO whole VALUES ($1, 1, repeat('w', 20000))`, round)
	p.exec(`INSERT INTO byindex VALUES ($1, 'k' || $1::int, 'v')`, round)
	p.exec(`INSERT INTO emptied VALUES ($1, 'v'), ($1 + 10, 'v')`, round)
	p.exec(`INSERT INTO parent VALUES ($1, 'p')`, round)
	p.exec(`INSERT INTO child VALUES ($1, 'c', 'w')`, round)
}

func TestAnyTableWithAKey(t *testing.T) {
	p := newPipeline(t, zoo)
	fill(p, 1)
	p.start()
	p.equal()
	p.logged("table is left out")
	if strings.Contains(p.logs.String(), "table=public.nokey") == false {
		t.Error("the table without a key was not named")
	}

	fill(p, 2)
	p.equal()
	snapshotted, followed := p.document("public.kinds", "1"), p.document("public.kinds", "2")
	if want := strings.Replace(snapshotted, `"id":1,`, `"id":2,`, 1); followed != want {
		t.Errorf("the same row from the feed and from a snapshot:\n%s\n%s", followed, want)
	}
	for _, part := range []string{
		`"b":true`, `"i8":9007199254740993`, `"f8":"NaN"`, `"n":1000000000000000000000000000000`, `"d":12.3400`, `"j":{"a":[1,2],"b":"\u0000"}`,
		`"ia":[1,null,3]`, `"ta":["a,b","NULL",null,"q\"q","\\",""]`, `"na":[1.10,"NaN"]`, `"nested":[[1,2],[3,4]]`, `"v":"<&>"`, `"Weird \"Col":"w"`,
		`"moods":["sad","it's \"ok\"",null]`, `"tz":"2024-02-29 18:29:59.123456+00"`, `"boxes":["(1,1),(0,0)","(2,2),(1,1)"]`,
	} {
		if !strings.Contains(followed, part) {
			t.Errorf("the document lacks %s: %s", part, followed)
		}
	}

	t.Log("updates, key changes, deletes, partitions, out-of-line values")
	p.exec(`UPDATE wide SET n = n + 1`)
	p.exec(`UPDATE whole SET n = n + 1`)
	p.exec(`UPDATE wide SET id = id + 1000 WHERE id = 1`)
	p.exec(`BEGIN; UPDATE wide SET big = 'small', n = 5 WHERE id = 2; UPDATE wide SET n = 6 WHERE id = 2; UPDATE wide SET big = repeat('y', 30000) WHERE id = 11;
UPDATE wide SET n = 7 WHERE id = 11; DELETE FROM wide WHERE id = 12; COMMIT`)
	p.exec(`UPDATE texts SET k = k || '/changed' WHERE k LIKE 'r%'`)
	p.exec(`UPDATE composite SET b = 'moved' WHERE a = 1 AND b = ''`)
	p.exec(`UPDATE parts SET at = 160 WHERE id = 1 AND at = 10`)
	p.exec(`UPDATE byindex SET other = other || '!', v = 'w'`)
	p.exec(`UPDATE byindex SET id = 77`)
	p.exec(`DELETE FROM byindex WHERE other = 'k2!'`)
	p.exec(`DELETE FROM composite WHERE a = 2`)
	p.exec(`UPDATE parent SET v = 'both'`)
	p.exec(`BEGIN; DELETE FROM parent; INSERT INTO parent VALUES (5, 'again'); COMMIT`)
	p.equal()

	t.Log("truncate, also of one partition")
	p.exec(`BEGIN; INSERT INTO emptied VALUES (50, 'gone'); TRUNCATE emptied; INSERT INTO emptied VALUES (51, 'stays'); COMMIT`)
	p.exec(`TRUNCATE parts_low`)
	p.equal()
}

func TestTablesThatComeChangeAndGo(t *testing.T) {
	p := newPipeline(t, `CREATE TABLE first (id int PRIMARY KEY, v text); INSERT INTO first VALUES (1, 'a'), (2, 'b')`)
	p.start()
	p.equal()
	p.exec(`CREATE TABLE later (id int PRIMARY KEY, v text); INSERT INTO later SELECT g, 'x' FROM generate_series(1, 50) g`)
	p.equal()
	p.exec(`UPDATE later SET v = 'y' WHERE id = 7`)
	p.equal()
	t.Log("a column with a default changes every row, and the feed says nothing")
	p.exec(`ALTER TABLE first ADD COLUMN w int DEFAULT 5`)
	p.equal()
	p.exec(`ALTER TABLE first DROP CONSTRAINT first_pkey, ADD PRIMARY KEY (id, v)`)
	p.exec(`UPDATE first SET v = 'c' WHERE id = 2`)
	p.equal()
	p.exec(`DROP TABLE later`)
	p.equal()
	p.exec(`CREATE TABLE later (id text PRIMARY KEY); INSERT INTO later VALUES ('new')`)
	p.equal()
}
