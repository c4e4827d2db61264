package outages_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/e2e/containers"
	"github.com/flusso/flusso-kafka/e2e/probe"
	"github.com/flusso/flusso-kafka/internal/kafkatest"
)

// The broker is stopped, killed and frozen under load: what was acknowledged is
// there, in order and once; sessions and consumers go on by themselves.
func TestRestart_of_the_broker_under_load(t *testing.T) {
	t.Parallel()
	b := containers.Kafka(t)
	sinks := []string{"a", "b"}
	p := kafkatest.Open(t, []kgo.Opt{kgo.SeedBrokers(b.Addr())}, sinks, nil)
	ingest := p.Stream(t, "feed-1")
	e := startEngine(t, ingest)
	var all []*sinkEngine
	var streams []flusso.Stream
	for _, sink := range sinks {
		s := p.Stream(t, "")
		streams = append(streams, s)
		all = append(all, startSink(t, s, sink))
	}

	outages := []struct {
		name     string
		down, up func(testing.TB)
	}{
		{"stopped", b.Stop, b.Start},
		{"killed", b.Kill, b.Start},
		{"frozen", b.Pause, b.Unpause},
		{"killed again", b.Kill, b.Start},
	}
	progress := func(what string, by flusso.Position) {
		t.Helper()
		began := time.Now()
		e.mu.Lock()
		target := e.last + by
		e.mu.Unlock()
		probe.Within(t, 2*probe.Wait, "sinks go on "+what, func(context.Context) error {
			for _, k := range all {
				if err := k.failed(); err != nil {
					t.Fatal(err)
				}
				k.mu.Lock()
				newest := k.newest
				k.mu.Unlock()
				if newest < target {
					e.mu.Lock()
					defer e.mu.Unlock()
					return fmt.Errorf("sink %s is at %s, the engine at %s, want %s; the engine's sessions ended by %v", k.name, newest, e.last, target, e.causes)
				}
			}
			return nil
		})
		t.Logf("%s: %d more positions at every sink after %s", what, by, time.Since(began).Round(10*time.Millisecond))
	}
	progress("at first", 300)
	for _, o := range outages {
		o.down(t)
		if o.name == "frozen" {
			pause(t, 12*time.Second) // longer than a group's session and a transaction last
		}
		o.up(t)
		progress("after the broker was "+o.name, 300)
	}

	e.mu.Lock()
	e.end = e.last
	last := e.end
	e.mu.Unlock()
	probe.Eventually(t, "the watermark is at the last position", func(ctx context.Context) error {
		w, err := ingest.Watermark(ctx)
		if err == nil && w.Position != last {
			err = fmt.Errorf("it is at %s of %s, held by %v", w.Position, last, w.Holders)
		}
		return err
	})
	e.stop()
	e.all.Wait()
	for _, k := range all {
		k.stop()
		k.all.Wait()
		if err := k.failed(); err != nil {
			t.Error(err)
		}
		items := probe.Lane(t, b.Addr(), p.Lane(t, k.name)) // holds it against the rules of the format
		next := flusso.Position(1)
		for _, it := range items {
			if it.Position != next {
				t.Fatalf("lane %s: position %s where %s was due", k.name, it.Position, next)
			}
			next++
		}
		if next != last+1 {
			t.Errorf("lane %s ends at %s, want %s", k.name, next-1, last)
		}
		t.Logf("sink %s: %d positions, each once in the lane; delivered %d times, %d of them again; attached %d times", k.name, last, k.delivered, k.again, k.attached)
	}
	t.Logf("the engine: %d positions acknowledged of %d, %d sessions, ended by %v, %d replayed items dropped", len(e.acked), last, e.sessions, e.causes, e.dropped)
	closing, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	for _, s := range append(streams, ingest) {
		if err := s.Close(closing); err != nil && !errors.Is(err, flusso.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	}
}

func pause(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}
