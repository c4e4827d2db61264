package ingest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
	"github.com/flusso/flusso-kafka/watermark"
)

// fewer is a stream that was built without some of the sinks.
type fewer struct {
	flusso.Stream
	sinks []string
}

func (f fewer) Sinks() []string { return append([]string(nil), f.sinks...) }

func (f fewer) Watermark(ctx context.Context) (flusso.Watermark, error) {
	mark, err := f.Stream.Watermark(ctx)
	floors := slices.DeleteFunc(slices.Clone(mark.Floors), func(l flusso.LaneFloor) bool { return !slices.Contains(f.sinks, l.Sink) })
	return watermark.Min(floors, mark.Incarnation, mark.ReadAt), err
}

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

func only(sink string) func(flusso.Stream) flusso.Stream {
	return func(s flusso.Stream) flusso.Stream { return fewer{s, []string{sink}} }
}

// A run without a sink lets the slot pass it: what changed meanwhile is in no
// lane of its, and is made good by a snapshot, once.
func TestASinkThatTheSlotHasPassedIsSeededAgain(t *testing.T) {
	for name, forget := range map[string]bool{"as remembered": false, "as the floors say": true} {
		t.Run(name, func(t *testing.T) {
			p := newPipeline(t, small+`; INSERT INTO small SELECT g, 'old' FROM generate_series(1, 20) g`)
			p.start()
			p.answered(2)
			p.equal()
			p.reaches("with both sinks")
			p.stop("ingest")
			p.stop(searchSink)

			p.wrap = only(tablesSink)
			p.startIngest()
			p.stop(tablesSink)
			p.startSink(tablesSink)
			p.exec(`DELETE FROM small WHERE id < 5; UPDATE small SET v = 'new' WHERE id > 10; INSERT INTO small VALUES (99, 'missed')`)
			p.exec(`CREATE TABLE later (id int PRIMARY KEY); INSERT INTO later VALUES (1)`)
			p.answered(3)
			p.reaches("without one of them")
			p.stop("ingest")
			p.stop(tablesSink)

			if forget {
				p.exec(`COMMENT ON PUBLICATION ` + p.cfg.Slot + ` IS NULL`)
			}
			p.wrap = nil
			started := func() int { return strings.Count(p.logs.String(), `msg="feed started"`) }
			before := started()
			p.startIngest()
			p.logged("the feed went on without this sink")
			eventually(t, "feed", func() error {
				if started() == before {
					return errors.New("not started")
				}
				return nil
			})
			p.stop("ingest")
			p.start()
			p.equal()
			p.reaches("with both sinks again")
			p.exec(`UPDATE small SET v = 'newer' WHERE id = 99`)
			p.equal()
			if n := strings.Count(p.logs.String(), "the feed went on without this sink"); n != 1 {
				t.Errorf("%d times a snapshot was asked for on behalf of the sink", n)
			}
		})
	}
}

// The sinks of this run are none of the last: the slot is ahead of all there
// are, and nobody else has moved it.
func TestAnotherSinkThanInTheLastRunIsSeeded(t *testing.T) {
	p := newPipeline(t, small+`; INSERT INTO small SELECT g, 'old' FROM generate_series(1, 20) g`)
	p.start()
	p.equal()
	p.reaches("with both sinks")
	p.stop("ingest")
	p.wrap = only(tablesSink)
	p.startIngest()
	p.stop(tablesSink)
	p.startSink(tablesSink)
	p.exec(`DELETE FROM small WHERE id < 5`)
	p.reaches("with the first")
	p.stop("ingest")
	p.exec(`DELETE FROM small WHERE id > 15`)
	p.wrap = only(searchSink)
	p.startIngest()
	p.stop(searchSink)
	p.startSink(searchSink)
	p.exec(`INSERT INTO small VALUES (99, 'behind it')`)
	eventually(t, "search index", func() error {
		return p.diff(func(f func(string, string, []byte) error) error { return p.search.Each(t.Context(), f) })
	})
	if logs := p.logs.String(); !strings.Contains(logs, `the feed went on without this sink`) {
		t.Errorf("not logged: %s", logs)
	}
}

// without is a stream in which an operator has retired the lane of a sink.
type without struct {
	flusso.Stream
	sink string
}

func (w without) Watermark(ctx context.Context) (flusso.Watermark, error) {
	mark, err := w.Stream.Watermark(ctx)
	for i := range mark.Floors {
		if f := &mark.Floors[i]; f.Sink == w.sink {
			f.State, f.Through = flusso.FloorRetired, flusso.NoPosition
		}
	}
	return watermark.Min(mark.Floors, mark.Incarnation, mark.ReadAt), err
}

// The slot passes a retired lane, and nothing is asked for on behalf of its sink:
// nobody reads it, and it is given everything. Restored, the sink has it all.
func TestTheSlotPassesARetiredLane(t *testing.T) {
	p := newPipeline(t, small+`; INSERT INTO small SELECT g, 'old' FROM generate_series(1, 20) g`)
	p.start()
	p.answered(2)
	p.equal()
	p.reaches("with both sinks")
	p.stop("ingest")
	p.stop(searchSink)

	p.wrap = func(s flusso.Stream) flusso.Stream { return without{s, searchSink} }
	p.startIngest()
	p.exec(`DELETE FROM small WHERE id < 5; UPDATE small SET v = 'new' WHERE id > 10`)
	p.reaches("past the retired lane")
	before := p.answers()
	p.stop("ingest")
	p.startIngest()
	p.exec(`INSERT INTO small VALUES (99, 'later')`)
	p.reaches("past the retired lane, in another run")
	if now := p.answers(); now != before {
		t.Errorf("%d snapshots were answered, and %d before: nobody asked for one", now, before)
	}

	p.stop("ingest")
	p.wrap = nil
	p.startIngest()
	p.startSink(searchSink)
	p.equal()
}
