package ingest_test

import (
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
)

// fewer is a stream that was built without some of the sinks.
type fewer struct {
	flusso.Stream
	sinks []string
}

func (f fewer) Sinks() []string { return append([]string(nil), f.sinks...) }

// TestARequestOfARetiredSinkIsLeftWaiting: a request outlives its sink, or comes
// from the command line. The engine must neither stop at it nor take it for served.
func TestARequestOfARetiredSinkIsLeftWaiting(t *testing.T) {
	p := newPipeline(t, `CREATE TABLE small (id int PRIMARY KEY, v text); INSERT INTO small VALUES (1, 'x')`)
	p.wrap = func(s flusso.Stream) flusso.Stream { return fewer{s, []string{tablesSink}} }
	p.startIngest()
	requests, err := p.stream.Requests().Producer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := requests.Publish(t.Context(), &flusso.Backfill{Sink: searchSink, Indexes: []string{"public.small"}}); err != nil {
		t.Fatal(err)
	}
	p.logged("is left waiting")
	p.startSink(tablesSink)
	p.exec(`INSERT INTO small VALUES (2, 'y')`)
	eventually(t, "target database", func() error {
		return p.diff(func(f func(string, string, []byte) error) error {
			return pgsink.Read(t.Context(), p.target, "flusso", f)
		})
	})

	// The sink is back, and so is what it asked for. Its store is fresh, so that it
	// asks for all tables as well, behind that: the two are taken together, and the
	// snapshot of all must not throw away the one before it.
	p.stop("ingest")
	p.stop(tablesSink)
	p.wrap = nil
	before := p.answers()
	p.start()
	p.answered(before + 2)
	p.equal()
}
