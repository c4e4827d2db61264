package demo_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/channel"
	"github.com/flusso/flusso-kafka/internal/demo"
)

// play runs a demo over the channel adapter in dir for so long, or until ctx
// ends, and returns what it compared and showed. The requests wait from the
// beginning.
func play(ctx context.Context, t *testing.T, dir string, length time.Duration, requests ...flusso.Request) (demo.Comparison, string, error) {
	t.Helper()
	source, err := demo.OpenSource(dir, 7)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := channel.New(channel.Config{Sinks: demo.Sinks(), Incarnation: source.Incarnation()})
	if err != nil {
		t.Fatal(err)
	}
	ask, err := stream.Requests().Producer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests {
		if _, err := ask.Publish(ctx, r); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask.Close(ctx); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	runner, err := demo.New(demo.Config{Stream: stream, Source: source, Dir: dir, For: length, View: demo.NewPlain(&out)})
	if err != nil {
		t.Fatal(err)
	}
	comparison, err := runner.Run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// What was not acked when a run is cut short is what Close reports.
	if cerr := errors.Join(stream.Close(closing), source.Close()); cerr != nil && err == nil {
		t.Errorf("close after the demo: %v", cerr)
	}
	return comparison, out.String(), err
}

func TestDemoEndsEqual(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		comparison, shown, err := play(t.Context(), t, dir, 8*time.Second)
		if err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
		if len(comparison) != 4 {
			t.Errorf("compared %d indexes of sinks, want 4", len(comparison))
		}
		for _, c := range comparison {
			if !c.Equal() || c.Source == 0 {
				t.Errorf("%+v: not equal, or nothing compared", c)
			}
		}
		for _, want := range []string{"dropped index orders", "killed with", "takes the lane over", "snapshot of", "all lanes drained"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the view never showed %q:\n%s", want, shown)
			}
		}
		for line := range strings.Lines(shown) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > demo.Width {
				t.Errorf("a line of %d columns: %q", n, line)
			}
		}
	})
}

// A request for an index that the source does not have is answered, and not
// said to be served.
func TestDemoRefusesAnIndexThatIsNotThere(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		_, shown, err := play(t.Context(), t, dir, 2*time.Second,
			&flusso.Backfill{Sink: demo.SlowSink, Indexes: []string{"oders"}},
			&flusso.Backfill{Sink: demo.FastSink, Indexes: []string{"odres", demo.Orders}})
		if err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
		for _, want := range []string{
			"ingest: archive asked for index oders: the source has no such index",
			"ingest: search asked for index odres: the source has no such index",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("the view never showed %q:\n%s", want, shown)
			}
		}
		for line := range strings.Lines(shown) {
			if strings.Contains(line, "snapshot of") && (strings.Contains(line, "oders") || strings.Contains(line, "odres")) {
				t.Errorf("said to be served: %s", line)
			}
		}
	})
}

func TestDemoFindsADifference(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		if _, shown, err := play(t.Context(), t, dir, 2*time.Second); err != nil {
			t.Fatalf("%v\n%s", err, shown)
		}
	})
	// A document that no lane brought, in an index that is not built anew.
	f, err := os.OpenFile(filepath.Join(dir, "sink-"+demo.SlowSink, "documents.journal"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteString(`{"put":{"index":"customers","id":"ghost","document":{}}}` + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		comparison, shown, err := play(t.Context(), t, dir, 2*time.Second)
		if !errors.Is(err, demo.ErrDifferent) {
			t.Fatalf("got %v, want %v\n%s", err, demo.ErrDifferent, shown)
		}
		for _, c := range comparison {
			want := 0
			if c.Sink == demo.SlowSink && c.Index == demo.Customers {
				want = 1
			}
			if c.Extra != want || c.Missing != 0 || c.Different != 0 {
				t.Errorf("%+v: want %d extra and nothing else", c, want)
			}
		}
	})
}

// A run that is cut short at any time leaves a directory that the next one
// goes on from, whatever the stream still knows.
func TestDemoGoesOn(t *testing.T) {
	dir := t.TempDir()
	incarnation := ""
	for _, cut := range []time.Duration{300 * time.Millisecond, 1500 * time.Millisecond, 2600 * time.Millisecond, 0} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			if cut > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, cut)
				defer cancel()
			}
			comparison, shown, err := play(ctx, t, dir, 3*time.Second)
			switch {
			case cut > 0 && !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("cut after %s: got %v, want %v\n%s", cut, err, context.DeadlineExceeded, shown)
			case cut == 0 && err != nil:
				t.Errorf("whole run after cuts: %v\n%s\n%v", err, shown, comparison)
			}
		})
		source, err := demo.OpenSource(dir, 99)
		if err != nil {
			t.Fatal(err)
		}
		if got := source.Incarnation(); incarnation != "" && got != incarnation {
			t.Errorf("incarnation %s after a restart, want %s", got, incarnation)
		}
		incarnation = source.Incarnation()
		if err := source.Close(); err != nil {
			t.Error(err)
		}
	}
}
