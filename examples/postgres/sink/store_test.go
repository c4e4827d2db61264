package sink_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/blevesink"
	"github.com/flusso/flusso-kafka/examples/postgres/internal/pgtest"
	"github.com/flusso/flusso-kafka/examples/postgres/pgsink"
	"github.com/flusso/flusso-kafka/examples/postgres/sink"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// script makes what a lane would carry for a source that changes at random,
// with snapshots now and then, some of them broken off. It returns the steps and
// the documents at the end.
func script(r *rand.Rand) (steps []sink.Step, source map[string]string) {
	source = make(map[string]string)
	indexes := []string{"public.a", "public.b"}
	at := func(key string) flusso.Envelope {
		return flusso.Envelope{Index: key[:len(indexes[0])], ID: key[len(indexes[0])+1:]}
	}
	put := func(keys ...string) {
		var docs []flusso.Envelope
		for _, k := range keys {
			e := at(k)
			if doc, ok := source[k]; ok {
				e.Op, e.Document = flusso.Upsert, []byte(doc)
			} else {
				e.Op = flusso.Delete
			}
			docs = append(docs, e)
		}
		steps = append(steps, sink.Step{Documents: docs})
	}
	change := func(published bool) {
		key := fmt.Sprintf("%s/%d", indexes[r.IntN(2)], r.IntN(12))
		if source[key] = fmt.Sprintf(`{"n":%d}`, r.IntN(1000)); r.IntN(3) == 0 {
			delete(source, key)
		}
		if published {
			put(key)
		}
	}
	snapshot := func(index string, whole bool) {
		steps = append(steps, sink.Step{Open: index})
		names := []string{index}
		if index == sink.Every {
			names = append(names, indexes...)
		}
		for _, key := range slices.Sorted(maps.Keys(source)) {
			if slices.Contains(names, at(key).Index) {
				if _, there := source[key]; there {
					put(key)
				}
				change(true)
			}
		}
		if whole {
			steps = append(steps, sink.Step{Complete: names})
		}
	}
	for range 40 {
		change(true)
		switch r.IntN(12) {
		case 0:
			snapshot(indexes[r.IntN(2)], r.IntN(2) == 0)
		case 1: // changes that the feed has lost, mended by a snapshot
			for range 4 {
				change(false)
			}
			snapshot(sink.Every, true)
		}
	}
	return steps, source
}

// A store that dies anywhere, and is given again what it had not acked, ends
// equal to the source.
func TestStoresEndEqualToTheSource(t *testing.T) {
	type reader func(f func(index, id string, document []byte) error) error
	for name, open := range map[string]func(t *testing.T) (sink.Store, reader){
		"postgres": func(t *testing.T) (sink.Store, reader) {
			target := pgtest.Database(t)
			return pgsink.New(target, "Odd Schema", nil), func(f func(string, string, []byte) error) error {
				return pgsink.Read(t.Context(), target, "Odd Schema", f)
			}
		},
		"bleve": func(t *testing.T) (sink.Store, reader) {
			s := blevesink.New(t.TempDir(), nil)
			return s, func(f func(string, string, []byte) error) error { return s.Each(t.Context(), f) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(2) {
				store, read := open(t)
				r := rand.New(rand.NewPCG(seed, 3))
				steps, want := script(r)
				ctx := t.Context()
				must(t, store.Acquire(ctx))
				must(t, store.SetAsked(ctx, []string{sink.Every}))
				acked := 0
				for at := 0; at < len(steps); {
					n := min(1+r.IntN(8), len(steps)-at)
					must(t, store.Apply(ctx, steps[at:at+n]))
					at += n
					switch r.IntN(4) {
					case 0: // applied, not acked, and dead
						at = acked
						must(t, store.Release(ctx))
						must(t, store.Acquire(ctx))
						acked = min(at+1, len(steps)) // so that it ends
					default:
						acked = at
					}
				}
				got := make(map[string]string)
				must(t, read(func(index, id string, document []byte) error { got[index+"/"+id] = string(document); return nil }))
				if !maps.Equal(got, want) {
					t.Errorf("seed %d, %d steps: got %v, want %v", seed, len(steps), got, want)
				}
				asked, err := store.Asked(ctx)
				if must(t, err); !slices.Equal(asked, []string{sink.Every}) {
					t.Errorf("asked for %q", asked)
				}
				must(t, store.Release(context.WithoutCancel(ctx)))
			}
		})
	}
}

// A store that could not be opened holds nothing: the next attempt, by the same
// process, is not kept out by the one that failed.
func TestAStoreThatCouldNotBeAcquiredIsFree(t *testing.T) {
	const schema = "kept"
	for name, broken := range map[string]func(t *testing.T) (store sink.Store, mend func()){
		"postgres": func(t *testing.T) (sink.Store, func()) {
			admin, err := pgx.Connect(t.Context(), pgtest.Database(t))
			must(t, err)
			t.Cleanup(func() { _ = admin.Close(context.Background()) })
			_, err = admin.Exec(t.Context(), "CREATE ROLE unprivileged LOGIN")
			must(t, err)
			target := *admin.Config()
			return pgsink.New(fmt.Sprintf("postgres://unprivileged@%s:%d/%s", target.Host, target.Port, target.Database), schema, nil), func() {
				_, err := admin.Exec(t.Context(), "CREATE SCHEMA "+schema+" AUTHORIZATION unprivileged; GRANT CREATE ON DATABASE "+target.Database+" TO unprivileged")
				must(t, err)
			}
		},
		"bleve": func(t *testing.T) (sink.Store, func()) {
			dir := t.TempDir()
			notOne := filepath.Join(dir, "index")
			must(t, os.WriteFile(notOne, []byte("not an index"), 0o600))
			return blevesink.New(dir, nil), func() { must(t, os.Remove(notOne)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			store, mend := broken(t)
			if err := store.Acquire(t.Context()); err == nil {
				t.Fatal("acquired a store that cannot be opened")
			}
			mend()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := store.Acquire(ctx); err != nil {
				t.Fatalf("the attempt that failed still holds the store: %v", err)
			}
			must(t, store.Release(ctx))
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
