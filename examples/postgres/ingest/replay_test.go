package ingest_test

import (
	"fmt"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
)

// An engine that starts again shows changes that the lanes hold already. They
// are dropped, so a row of theirs must come with the snapshot that is taken meanwhile:
// the lanes have it from before the snapshot began, and what was not written since
// is removed when it is complete [D1].
func TestD1_ASnapshotHasTheRowsThatTheFeedReplays(t *testing.T) {
	const rows = 300
	p := newPipeline(t, fmt.Sprintf(`
		CREATE TABLE notes (id int PRIMARY KEY, n bigint NOT NULL, big text);
		ALTER TABLE notes ALTER big SET STORAGE EXTERNAL;
		INSERT INTO notes SELECT g, 0, repeat('b', 3000) FROM generate_series(1, %d) g`, rows))
	w := newWatched("public.notes")
	p.wrap = func(s flusso.Stream) flusso.Stream { w.Stream = s; return w }
	p.start()
	p.answered(2)
	p.equal()

	// These wait in the lanes, and the slot waits with them.
	p.stop(tablesSink)
	p.stop(searchSink)
	for id := range rows {
		p.exec("UPDATE notes SET n = 1 WHERE id = $1", id+1) // without big, which is read from the table
	}
	eventually(t, "changes published", func() error {
		if n := w.at(1); n < rows {
			return fmt.Errorf("%d of %d documents", n, rows)
		}
		return nil
	})
	p.stop("ingest")
	requests, err := p.stream.Requests().Producer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{tablesSink, searchSink} {
		if _, err := requests.Publish(t.Context(), &flusso.Backfill{Sink: s, Indexes: []string{"public.notes"}}); err != nil {
			t.Fatal(err)
		}
	}

	p.start()
	p.logged("the feed replays what the lanes hold already")
	p.answered(4)
	p.equal()
}
