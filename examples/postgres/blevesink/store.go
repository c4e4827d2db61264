// Package blevesink keeps documents in a search index (Bleve) on disk. [Store]
// is a sink.Store; [Store.Search] and [Store.Each] read it, also while the
// sink works.
package blevesink

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/analysis/analyzer/keyword"
	"github.com/blevesearch/bleve/v2/mapping"
	"github.com/blevesearch/bleve/v2/search/query"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/examples/postgres/sink"
)

// Fields that each entry has beside those of its document.
const (
	indexField      = "_index"      // the document's index, one term
	generationField = "_generation" // when it was last written, in snapshots begun
	documentField   = "_document"   // the document as it came; stored, not searched
)

// Store is a directory with one Bleve index for all indexes. Bleve returns from
// a batch when it is synced to disk (its unsafe_batch stays off).
type Store struct {
	dir  string
	log  *slog.Logger
	lock *os.File

	mu    sync.RWMutex // the index is opened and closed under it
	index bleve.Index
}

var _ sink.Store = (*Store)(nil)

// ErrNotOpen tells that the store is read before the sink has opened it.
var ErrNotOpen = errors.New("the index is not open yet")

// New returns a store in a directory, which is created when it is missing. A
// nil logger logs nothing.
func New(dir string, log *slog.Logger) *Store {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Store{dir: dir, log: log}
}

// Acquire implements sink.Store. The kernel drops the lock with the process.
func (s *Store) Acquire(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("create the search index: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("lock the search index: %w", err)
	}
	for waited := false; ; waited = true {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = lock.Close()
			return fmt.Errorf("lock the search index: %w", err)
		}
		if !waited {
			s.log.Warn("another process works on this search index; waiting for it to end", "dir", s.dir)
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			_ = lock.Close()
			return err
		}
	}
	index, err := s.open()
	if err != nil {
		_ = lock.Close()
		return fmt.Errorf("open the search index in %s: %w", s.dir, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lock, s.index = lock, index
	return nil
}

// open creates the index beside its place and moves it there, so that one that
// is in its place is whole.
func (s *Store) open() (bleve.Index, error) {
	at := filepath.Join(s.dir, "index")
	if _, err := os.Stat(at); err == nil {
		return bleve.Open(at)
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	beside := at + ".new"
	if err := os.RemoveAll(beside); err != nil {
		return nil, err
	}
	index, err := bleve.New(beside, newMapping())
	if err != nil {
		return nil, err
	}
	if err := index.Close(); err != nil {
		return nil, err
	}
	if err := os.Rename(beside, at); err != nil {
		return nil, err
	}
	return bleve.Open(at)
}

func newMapping() mapping.IndexMapping {
	m := bleve.NewIndexMapping()
	m.StoreDynamic = false
	m.DocValuesDynamic = false
	term := bleve.NewTextFieldMapping()
	term.Analyzer = keyword.Name
	term.Store, term.IncludeInAll = false, false
	generation := bleve.NewNumericFieldMapping()
	generation.Store, generation.IncludeInAll = false, false
	stored := bleve.NewTextFieldMapping()
	stored.Index, stored.IncludeInAll, stored.IncludeTermVectors, stored.DocValues = false, false, false, false
	m.DefaultMapping.AddFieldMappingsAt(indexField, term)
	m.DefaultMapping.AddFieldMappingsAt(generationField, generation)
	m.DefaultMapping.AddFieldMappingsAt(documentField, stored)
	return m
}

// Release implements sink.Store.
func (s *Store) Release(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.index != nil {
		err = s.index.Close()
		s.index = nil
	}
	if s.lock != nil {
		err = errors.Join(err, s.lock.Close())
		s.lock = nil
	}
	return err
}

// Keys of what the store keeps about its content.
var (
	askedKey      = []byte("flusso/asked")
	generationKey = []byte("flusso/generation")
)

// openedKey holds the generation that the last snapshot of an index began with.
func openedKey(index string) []byte { return []byte("flusso/opened/" + index) }

// Asked implements sink.Store.
func (s *Store) Asked(context.Context) (asked []string, err error) {
	raw, err := s.index.GetInternal(askedKey)
	if err != nil {
		return nil, fmt.Errorf("look what was asked for: %w", err)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &asked); err != nil {
		return nil, fmt.Errorf("look what was asked for: %w", err)
	}
	return asked, nil
}

// SetAsked implements sink.Store.
func (s *Store) SetAsked(_ context.Context, indexes []string) error {
	raw, err := json.Marshal(indexes)
	if err != nil {
		return fmt.Errorf("record what was asked for: %w", err)
	}
	b := s.index.NewBatch()
	b.SetInternal(askedKey, raw)
	if err := s.index.Batch(b); err != nil {
		return fmt.Errorf("record what was asked for: %w", err)
	}
	return nil
}

func (s *Store) number(key []byte) (int64, error) {
	raw, err := s.index.GetInternal(key)
	if err != nil || len(raw) == 0 {
		return 0, err
	}
	return strconv.ParseInt(string(raw), 10, 64)
}

// Apply implements sink.Store. Each step is one or more batches of Bleve; done
// again from any step on, they end the same.
func (s *Store) Apply(ctx context.Context, steps []sink.Step) error {
	for _, step := range steps {
		var err error
		switch {
		case step.Open != "":
			err = s.begin(step.Open)
		case step.Complete != nil:
			err = s.complete(ctx, step.Complete)
		default:
			err = s.write(step.Documents)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) begin(index string) error {
	generation, err := s.number(generationKey)
	if err != nil {
		return err
	}
	next := strconv.AppendInt(nil, generation+1, 10)
	b := s.index.NewBatch()
	b.SetInternal(generationKey, next)
	b.SetInternal(openedKey(index), next)
	return s.index.Batch(b)
}

func (s *Store) write(docs []flusso.Envelope) error {
	generation, err := s.number(generationKey)
	if err != nil {
		return err
	}
	b := s.index.NewBatch()
	for i := range docs {
		e := &docs[i]
		key := e.Index + "/" + e.ID
		if e.Op == flusso.Delete {
			b.Delete(key)
			continue
		}
		fields := make(map[string]any)
		if err := json.Unmarshal(e.Document, &fields); err != nil {
			// Not an object, or not JSON: it is kept, and found by its index.
			fields = make(map[string]any)
		}
		fields[indexField], fields[generationField], fields[documentField] = e.Index, float64(generation), string(e.Document)
		if err := b.Index(key, fields); err != nil {
			return fmt.Errorf("index %s: %w", key, err)
		}
	}
	return s.index.Batch(b)
}

// complete removes what was not written since the snapshot began.
func (s *Store) complete(ctx context.Context, indexes []string) error {
	for _, index := range indexes {
		opened, err := s.number(openedKey(index))
		if err != nil {
			return err
		}
		if opened == 0 {
			continue
		}
		limit := float64(opened)
		old := bleve.NewNumericRangeQuery(nil, &limit) // below, without it
		old.SetField(generationField)
		var q query.Query = old
		if index != sink.Every {
			q = bleve.NewConjunctionQuery(old, inIndex(index))
		}
		for {
			const atOnce = 1000
			found, err := s.index.SearchInContext(ctx, bleve.NewSearchRequestOptions(q, atOnce, 0, false))
			if err != nil {
				return fmt.Errorf("remove what the snapshot of %s does not have: %w", index, err)
			}
			if len(found.Hits) == 0 {
				break
			}
			b := s.index.NewBatch()
			for _, h := range found.Hits {
				b.Delete(h.ID)
			}
			if err := s.index.Batch(b); err != nil {
				return fmt.Errorf("remove what the snapshot of %s does not have: %w", index, err)
			}
		}
	}
	return nil
}

func inIndex(index string) query.Query {
	q := bleve.NewTermQuery(index)
	q.SetField(indexField)
	return q
}

// Passing implements sink.Store: trouble with the disk does not go away by
// itself, so the process ends and whatever restarts it sees why.
func (s *Store) Passing(error) bool { return false }

// Hit is a document that was found.
type Hit struct {
	Index    string          `json:"index"`
	ID       string          `json:"id"`
	Score    float64         `json:"score,omitempty"`
	Document json.RawMessage `json:"document"`
}

// Search returns the best hits of a query in Bleve's query string syntax, and
// how many there are in all.
func (s *Store) Search(ctx context.Context, text string, limit int) (hits []Hit, total uint64, err error) {
	q := bleve.NewQueryStringQuery(text)
	if err := q.Validate(); err != nil {
		return nil, 0, fmt.Errorf("query %q: %w", text, err)
	}
	r := bleve.NewSearchRequestOptions(q, limit, 0, false)
	return s.search(ctx, r)
}

func (s *Store) search(ctx context.Context, r *bleve.SearchRequest) ([]Hit, uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.index == nil {
		return nil, 0, ErrNotOpen
	}
	r.Fields = []string{documentField}
	found, err := s.index.SearchInContext(ctx, r)
	if err != nil {
		return nil, 0, fmt.Errorf("search: %w", err)
	}
	var hits []Hit
	for _, h := range found.Hits {
		index, id, _ := strings.Cut(h.ID, "/")
		document, _ := h.Fields[documentField].(string)
		hits = append(hits, Hit{Index: index, ID: id, Score: h.Score, Document: json.RawMessage(document)})
	}
	return hits, found.Total, nil
}

// Each calls f with every document, in order of index and id. Documents that
// change meanwhile may come in their old or new state.
func (s *Store) Each(ctx context.Context, f func(index, id string, document []byte) error) error {
	const atOnce = 2000
	var after []string
	for {
		r := bleve.NewSearchRequestOptions(bleve.NewMatchAllQuery(), atOnce, 0, false)
		r.SortBy([]string{"_id"})
		if after != nil {
			r.SetSearchAfter(after)
		}
		hits, _, err := s.search(ctx, r)
		if err != nil {
			return err
		}
		if len(hits) == 0 {
			return nil
		}
		for _, h := range hits {
			if err := f(h.Index, h.ID, h.Document); err != nil {
				return err
			}
		}
		last := hits[len(hits)-1]
		after = []string{last.Index + "/" + last.ID}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
