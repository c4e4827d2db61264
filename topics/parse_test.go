package topics_test

import (
	"errors"
	"strings"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/topics"
)

// names of valid pipelines and sinks that tempt a parser.
var names = []string{"a", "0", "-", "_", "orders", "lane", "sink", "requests", "writer", "a_lane_b", strings.Repeat("x", flusso.MaxName)}

func TestNamesParseFormatIdentity(t *testing.T) {
	for _, pipeline := range names {
		p, err := topics.NewPipeline(pipeline)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := topics.ParseRequestsTopic(p.RequestsTopic()); err != nil || got != p {
			t.Errorf("ParseRequestsTopic(%q) = %v, %v", p.RequestsTopic(), got, err)
		}
		if got, err := topics.ParseIngestGroup(p.IngestGroup()); err != nil || got != p {
			t.Errorf("ParseIngestGroup(%q) = %v, %v", p.IngestGroup(), got, err)
		}
		for i := range topics.WriterIDs {
			if got, n, err := topics.ParseWriterID(p.WriterID(i)); err != nil || got != p || n != i {
				t.Errorf("ParseWriterID(%q) = %v, %d, %v", p.WriterID(i), got, n, err)
			}
		}
		for _, sink := range names {
			l, err := p.Lane(sink)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := topics.ParseLaneTopic(l.Topic()); err != nil || got != l {
				t.Errorf("ParseLaneTopic(%q) = %v, %v", l.Topic(), got, err)
			}
			if got, err := topics.ParseSinkGroup(l.Group()); err != nil || got != l {
				t.Errorf("ParseSinkGroup(%q) = %v, %v", l.Group(), got, err)
			}
			if len(l.Topic()) > 249 {
				t.Errorf("topic %s is longer than Kafka takes", l.Topic())
			}
		}
	}
}

func TestNamesRejected(t *testing.T) {
	for _, s := range []string{
		"", ".", "a", "a.lane", "a.lane.", ".lane.a", "a.lane.b.c", "a.b.lane.c", "A.lane.b", "a.lane.b ", "a.lane.ü",
		"a.sink.", "a.requests.b", ".requests", "a.ingest.", "a.writer.", "a.writer.4", "a.writer.-1", "a.writer.01", "a.writer.+1", "a.writer.x",
		strings.Repeat("x", flusso.MaxName+1) + ".lane.a",
	} {
		var name *flusso.NameError
		if _, err := topics.ParseLaneTopic(s); !errors.As(err, &name) {
			t.Errorf("ParseLaneTopic(%q): got %v, want a NameError", s, err)
		}
		if _, err := topics.ParseSinkGroup(s); !errors.As(err, &name) {
			t.Errorf("ParseSinkGroup(%q): got %v, want a NameError", s, err)
		}
		if _, err := topics.ParseRequestsTopic(s); !errors.As(err, &name) {
			t.Errorf("ParseRequestsTopic(%q): got %v, want a NameError", s, err)
		}
		if _, err := topics.ParseIngestGroup(s); !errors.As(err, &name) {
			t.Errorf("ParseIngestGroup(%q): got %v, want a NameError", s, err)
		}
		if _, _, err := topics.ParseWriterID(s); !errors.As(err, &name) {
			t.Errorf("ParseWriterID(%q): got %v, want a NameError", s, err)
		}
	}
}

// FuzzNames checks that whatever parses is formatted back to itself, and that
// one string is never the name of two things.
func FuzzNames(f *testing.F) {
	for _, a := range names {
		f.Add(a + ".lane." + a)
		f.Add(a + ".sink." + a)
		f.Add(a + ".requests")
		f.Add(a + ".ingest")
		f.Add(a + ".writer.3")
	}
	f.Add("a.lane.b.lane.c")
	f.Fuzz(func(t *testing.T, s string) {
		kinds := 0
		if l, err := topics.ParseLaneTopic(s); err == nil {
			kinds++
			if l.Topic() != s {
				t.Errorf("lane topic %q is formatted as %q", s, l.Topic())
			}
		}
		if l, err := topics.ParseSinkGroup(s); err == nil {
			kinds++
			if l.Group() != s {
				t.Errorf("sink group %q is formatted as %q", s, l.Group())
			}
		}
		if p, err := topics.ParseRequestsTopic(s); err == nil {
			kinds++
			if p.RequestsTopic() != s {
				t.Errorf("requests topic %q is formatted as %q", s, p.RequestsTopic())
			}
		}
		if p, err := topics.ParseIngestGroup(s); err == nil {
			kinds++
			if p.IngestGroup() != s {
				t.Errorf("ingest group %q is formatted as %q", s, p.IngestGroup())
			}
		}
		if p, i, err := topics.ParseWriterID(s); err == nil {
			kinds++
			if p.WriterID(i) != s {
				t.Errorf("writer id %q is formatted as %q", s, p.WriterID(i))
			}
		}
		if kinds > 1 {
			t.Errorf("%q is the name of %d things", s, kinds)
		}
	})
}
