package lanes_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/wire"
	"github.com/flusso/flusso-kafka/kafka"
	"github.com/flusso/flusso-kafka/topics"
)

const mib = 1 << 20

// document returns one of a size: text that compresses to nothing, or noise
// that does not compress.
func document(size int, compressible bool) []byte {
	if compressible {
		return bytes.Repeat([]byte("a"), size)
	}
	out := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1: byte(size)})
	_, _ = rng.Read(out) // never fails
	return out
}

func large(at flusso.Position, document []byte) *flusso.Batch {
	return &flusso.Batch{Position: at, Changes: 1, Envelopes: []flusso.Envelope{
		{Index: "orders", ID: "large", Op: flusso.Upsert, Position: at, Document: document},
	}}
}

// Documents near and over the limit are published whole, or refused by name
// before anything is sent; the session goes on either way.
func TestCase32_documents_near_and_over_the_limit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{0, 8 * mib} {
		name := "1 MiB, the broker's default"
		if limit > 0 {
			name = "8 MiB"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := open(t, func(c *kafka.Config) { c.Topics = topics.Options{MaxMessageBytes: limit} }, "a")
			s := use(t, p.Stream(t, inc))
			w, r := s.writer("a"), s.reader("a")
			var at flusso.Position
			for _, size := range []int{900 << 10, mib - 1, mib + 1, 6 * mib} {
				for _, compressible := range []bool{true, false} {
					at++
					b := large(at, document(size, compressible))
					before := ends(t, p.Lane(t, "a"))
					ctx, cancel := s.bounded()
					_, err := w.Publish(ctx, b)
					cancel()
					// What is refused is refused by its size as it is: whether a batch
					// compresses well enough is not known before it is sent.
					var over *flusso.LimitError
					switch fits := limit > 0 || size < mib-1; {
					case fits && err != nil:
						t.Fatalf("%d bytes, compressible %t: %v", size, compressible, err)
					case fits:
						d := r.next(at)
						sameBatch(t, d.Item(), b)
						if err := d.Ack(t.Context()); err != nil {
							t.Fatal(err)
						}
					case !errors.As(err, &over):
						t.Fatalf("%d bytes, compressible %t: %v, want a LimitError", size, compressible, err)
					case over.Setting != "max.message.bytes of topic "+p.Lane(t, "a").Topic() || over.Value <= over.Max || !strings.Contains(over.What, "orders/large"):
						t.Errorf("the error does not name record, setting and sizes: %+v", over)
					case ends(t, p.Lane(t, "a")) != before:
						t.Errorf("%d bytes: refused, but something was sent", size)
					default:
						t.Logf("%d bytes, compressible %t: %v", size, compressible, err)
					}
				}
			}
			s.publish(w, live(at+1, "after the large ones"))
			r.acks(at + 1)
			s.reaches(at + 1)
			t.Logf("%s: all that was accepted came whole", name)
		})
	}
}

// The largest record that is accepted is one that the broker takes too, in a
// batch of its own and behind others.
func TestF2_a_record_of_exactly_the_limit(t *testing.T) {
	t.Parallel()
	p := open(t, nil, "a")
	s := use(t, p.Stream(t, inc))
	w, r := s.writer("a"), s.reader("a")
	ctx, cancel := s.bounded()
	defer cancel()
	_, err := w.Publish(ctx, large(1, document(2*mib, false)))
	var over *flusso.LimitError
	if !errors.As(err, &over) {
		t.Fatalf("publish 2 MiB: %v, want a LimitError", err)
	}
	exact := 2*mib - int(over.Value-over.Max)
	if _, err := w.Publish(ctx, large(1, document(exact+1, false))); !errors.As(err, &over) || over.Value != over.Max+1 {
		t.Fatalf("publish one byte above the limit: %v, want a LimitError", err)
	}
	alone := large(1, document(exact, false))
	last := large(2, document(exact, false))
	last.Envelopes = append(live(2, "1", "2", "3").Envelopes, last.Envelopes...)
	many := &flusso.Batch{Position: 3, Changes: 40}
	for i := range 40 { // 20 MiB: more than a segment, and than a fetch
		many.Envelopes = append(many.Envelopes, flusso.Envelope{
			Index: "orders", ID: fmt.Sprint(i), Op: flusso.Upsert, Position: 3, Document: document(mib/2+i, false),
		})
	}
	for _, b := range []*flusso.Batch{alone, last, many} {
		s.publish(w, b)
		d := r.next(b.Position)
		sameBatch(t, d.Item(), b)
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.reaches(3)
	t.Logf("the largest document is %d bytes, for a limit of %d; a batch of 20 MiB came whole", exact, over.Max)
}

// Names, ids and incarnation at their longest, and a header at its limit, make
// the trip; the metadata of the commits fits [F2, Case 18].
func TestF2_names_headers_and_metadata_at_their_limits(t *testing.T) {
	t.Parallel()
	sink, longest := strings.Repeat("s", flusso.MaxName), strings.Repeat("i", flusso.MaxIncarnation)
	p := open(t, nil, sink)
	s := use(t, p.Stream(t, longest))
	w, r := s.writer(sink), s.reader(sink)
	b := &flusso.Batch{Position: 1<<64 - 1, Changes: 1<<64 - 1, Envelopes: []flusso.Envelope{{
		Index: strings.Repeat("ä", flusso.MaxIndex/2), ID: strings.Repeat("日", flusso.MaxID/3), Op: flusso.Upsert, Position: 1, Document: []byte("x"),
	}}}
	s.publish(w, b)
	d := r.next(b.Position)
	sameBatch(t, d.Item(), b)
	if err := d.Ack(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.reaches(b.Position)
	meta := committed(t, store(t), p.Lane(t, sink)).Raw
	if len(meta) > wire.MaxMetadata {
		t.Errorf("the metadata has %d bytes: %s", len(meta), meta)
	}

	// The marker's indexes travel in one header.
	marker := &flusso.SnapshotComplete{}
	for i := 0; ; i++ {
		marker.Indexes = append(marker.Indexes, fmt.Sprintf("%s%d", strings.Repeat("x", 200), i))
		if wire.Check(sink, marker) != nil {
			break
		}
	}
	ctx, cancel := s.bounded()
	defer cancel()
	var over *flusso.LimitError
	if _, err := w.Publish(ctx, marker); !errors.As(err, &over) || over.Max != wire.MaxHeader {
		t.Fatalf("publish a marker of %d indexes: %v, want a LimitError", len(marker.Indexes), err)
	}
	t.Logf("metadata of %d bytes: %s; a marker of %d long indexes: %v", len(meta), meta, len(marker.Indexes), over)
	marker.Indexes = marker.Indexes[:len(marker.Indexes)-1]
	s.publish(w, marker)
	got, err := r.Receive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := got.Item().(*flusso.SnapshotComplete); !ok || len(m.Indexes) != len(marker.Indexes) {
		t.Errorf("received %+v, want the marker", got.Item())
	}
}

// ends returns where a lane ends for those who read everything.
func ends(t *testing.T, l topics.Lane) flusso.Offset {
	t.Helper()
	all, err := store(t).Ends(t.Context(), []topics.Lane{l})
	if err != nil {
		t.Fatal(err)
	}
	return all[l].High
}
