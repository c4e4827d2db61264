package segment_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/flusso/flusso-kafka/internal/kfaketest"
	"github.com/flusso/flusso-kafka/internal/segment"
)

// TestModel runs sessions one after the other, each into a fault of its own at
// a random place, some taken over while they work, and compares the log with
// everything that was ever told: what committed shows once and in order, what
// was rejected never, an unknown segment whole or not at all.
func TestModel(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T, w world) { model(t, w, rand.New(rand.NewPCG(seed, 7))) })
		})
	}
}

// randomFault picks a kind of request and what happens to it.
func randomFault(r *rand.Rand) (kmsg.Key, kfaketest.Fault) {
	kind := kinds[r.IntN(len(kinds))]
	f := kfaketest.Fault{
		Mode: kfaketest.Mode(r.IntN(3)), After: r.IntN(2) == 0, Skip: r.IntN(6), Times: 1 - 2*r.IntN(2), ClientID: "writer",
	}
	if f.Mode == kfaketest.Error {
		f.Code = kind.codes[r.IntN(len(kind.codes))]
	}
	return kind.key, f
}

func model(t *testing.T, w world, r *rand.Rand) {
	var names []string
	l := newLedger()
	var stale []*segment.Session
	for session := range 6 {
		s, err := w.tryOpen(t, func(c *segment.Config) { c.MaxBytes, c.MaxUnackedBytes = 2000, 8000 })
		if err != nil {
			t.Fatalf("open %d: %v", session, err)
		}
		key, f := randomFault(r)
		in := w.Fault(t, key, f)
		for i := range 12 {
			name := fmt.Sprintf("%d.%d", session, i)
			if s.Submit(t.Context(), sized(entry(l, name, "a", "b"), r.IntN(3000))) != nil {
				break
			}
			names = append(names, name)
			if r.IntN(3) == 0 {
				kfaketest.Pass(time.Duration(r.IntN(300)) * time.Millisecond)
			}
		}
		if r.IntN(4) == 0 {
			stale = append(stale, s) // it works on while the next one opens
			in.Release()
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(90))*time.Second)
		_ = s.Close(ctx)
		cancel()
		in.Release()
	}
	last := w.open(t)
	for _, s := range stale {
		_ = s.Close(t.Context())
	}
	submit(t, last, entry(l, "last", "a", "b"))
	if err := last.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	names = append(names, "last")
	l.wait(len(names))

	read := w.read(t, "a")
	if other := w.read(t, "b"); other != read {
		t.Errorf("topic a holds %q, topic b %q", read, other)
	}
	place := make(map[string]int)
	for i, v := range strings.Fields(read) {
		if at, twice := place[v]; twice {
			t.Errorf("%s shows at %d and %d", v, at, i)
		}
		place[v] = i
	}
	told := make(map[string]string)
	for _, res := range l.all() {
		if _, twice := told[res.name]; twice {
			t.Errorf("%s resolved twice", res.name)
		}
		told[res.name] = outcome(res.err)
	}
	before := -1
	unknown := make(map[string]map[bool]bool) // by session: do its unknown entries show?
	for _, name := range names {
		at, shows := place[name]
		switch told[name] {
		case "":
			if !shows {
				t.Errorf("%s is committed and does not show", name)
			}
		case "=rejected":
			if shows {
				t.Errorf("%s is rejected and shows", name)
			}
		case "=unknown":
			session, _, _ := strings.Cut(name, ".")
			if unknown[session] == nil {
				unknown[session] = make(map[bool]bool)
			}
			unknown[session][shows] = true
		}
		if shows && at < before {
			t.Errorf("%s shows before what was submitted earlier: %q", name, read)
		}
		if shows {
			before = at
		}
	}
	for session, shown := range unknown {
		if len(shown) > 1 {
			t.Errorf("session %s: its unknown segment shows in part", session)
		}
	}
}
