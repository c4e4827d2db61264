package feeds_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/driver"
	"gocloud.dev/gcerrors"
)

// store is a bucket in memory that fails as stores do. Its address is
// faulty://<name>.
type store struct {
	mu      sync.Mutex
	objects map[string][]byte
	mode    atomic.Int32
	pause   atomic.Int64 // of one that is slow; 1 ms when zero
	cut     atomic.Bool  // what is read ends half-way, and no error tells
	kept    atomic.Int64 // the delete of that number fails, from 1 on
	deletes atomic.Int64 // that were asked for
	hits    [modes]atomic.Int64
}

// mode is how a store fails.
type mode int32

const (
	sound      mode = iota
	readOnly        // writes are refused
	full            // writes fail on their way: no space
	halfway         // writes fail at their end, and nothing is there
	lostReply       // writes fail at their end, and the object is there
	away            // nothing answers
	slow            // everything takes a while
	unreadable      // reads fail
	unlisted        // lists fail
	flaky           // each write in turn: sound, halfway, lostReply
	modes
)

func (m mode) String() string {
	return [...]string{"sound", "read-only", "full", "gone half-way", "reply lost", "away", "slow", "unreadable", "unlisted", "flaky"}[m]
}

func (s *store) be(m mode) { s.mode.Store(int32(m)) }

// stores are those of all tests, by name.
var stores sync.Map

func newStore(name string) (s *store, address string) {
	s = &store{objects: make(map[string][]byte)}
	stores.Store(name, s)
	return s, "faulty://" + name
}

func init() {
	blob.DefaultURLMux().RegisterBucket("faulty", opener{})
}

type opener struct{}

func (opener) OpenBucketURL(_ context.Context, u *url.URL) (*blob.Bucket, error) {
	s, ok := stores.Load(u.Host)
	if !ok {
		return nil, errors.New("no such store")
	}
	if s.(*store).now() == away {
		return nil, errStore
	}
	return blob.NewBucket(faulty{s.(*store)}), nil
}

var (
	errStore  = errors.New("the store fails")
	errAbsent = errors.New("the store has no such object")
)

// now counts and returns the mode.
func (s *store) now() mode {
	m := mode(s.mode.Load())
	n := s.hits[m].Add(1)
	if m == slow {
		time.Sleep(max(time.Millisecond, time.Duration(s.pause.Load()))) //nolint:forbidigo // a store that is slow, not a test that waits
	}
	if m == flaky {
		return []mode{sound, halfway, lostReply}[n%3]
	}
	return m
}

// whole checks that every object is what its name says: nothing is half there.
func (s *store) whole(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, content := range s.objects {
		sum := sha256.Sum256(content)
		if !strings.HasSuffix(name, "/feed.json") && !strings.HasSuffix(name, hex.EncodeToString(sum[:])) {
			t.Errorf("object %s holds %d other bytes", name, len(content))
		}
	}
}

// names returns the names of the objects.
func (s *store) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// faulty implements [driver.Bucket].
type faulty struct{ *store }

func (faulty) ErrorCode(err error) gcerrors.ErrorCode {
	switch {
	case errors.Is(err, errAbsent):
		return gcerrors.NotFound
	case errors.Is(err, context.Canceled):
		return gcerrors.Canceled
	}
	return gcerrors.Unknown
}
func (faulty) As(any) bool             { return false }
func (faulty) ErrorAs(error, any) bool { return false }
func (faulty) Close() error            { return nil }

func (faulty) Attributes(context.Context, string) (*driver.Attributes, error) { return nil, errStore }

func (faulty) Copy(context.Context, string, string, *driver.CopyOptions) error { return errStore }

func (faulty) SignedURL(context.Context, string, *driver.SignedURLOptions) (string, error) {
	return "", errStore
}

func (f faulty) ListPaged(_ context.Context, o *driver.ListOptions) (*driver.ListPage, error) {
	if m := f.now(); m == away || m == unlisted {
		return nil, errStore
	}
	page := &driver.ListPage{}
	for _, name := range f.names() {
		if strings.HasPrefix(name, o.Prefix) {
			page.Objects = append(page.Objects, &driver.ListObject{Key: name})
		}
	}
	return page, nil
}

func (f faulty) NewRangeReader(_ context.Context, key string, offset, length int64, _ *driver.ReaderOptions) (driver.Reader, error) {
	if m := mode(f.mode.Load()); m == away || m == unreadable || m == slow {
		if f.now(); m != slow {
			return nil, errStore
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	content, ok := f.objects[key]
	if !ok {
		return nil, errAbsent
	}
	size := int64(len(content))
	content = content[min(offset, size):]
	if length >= 0 && length < int64(len(content)) {
		content = content[:length]
	}
	if f.cut.Load() {
		content = content[:len(content)/2]
	}
	return &faultyReader{bytes.NewReader(content), size}, nil
}

type faultyReader struct {
	*bytes.Reader
	size int64
}

func (*faultyReader) Close() error { return nil }
func (*faultyReader) As(any) bool  { return false }
func (r *faultyReader) Attributes() *driver.ReaderAttributes {
	return &driver.ReaderAttributes{ContentType: "application/octet-stream", Size: r.size}
}

func (f faulty) NewTypedWriter(ctx context.Context, key, _ string, o *driver.WriterOptions) (driver.Writer, error) {
	m := f.now()
	if m == away || m == readOnly {
		return nil, errStore
	}
	if o.BeforeWrite != nil {
		if err := o.BeforeWrite(func(any) bool { return false }); err != nil {
			return nil, err
		}
	}
	return &faultyWriter{store: f.store, ctx: ctx, key: key, mode: m}, nil
}

type faultyWriter struct {
	store *store
	ctx   context.Context //nolint:containedctx // as the driver's contract has it
	key   string
	mode  mode
	buf   bytes.Buffer
}

func (w *faultyWriter) Write(p []byte) (int, error) {
	if w.mode == full {
		return 0, syscall.ENOSPC
	}
	return w.buf.Write(p)
}

func (w *faultyWriter) Close() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if w.mode == halfway {
		return errStore
	}
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	w.store.objects[w.key] = w.buf.Bytes()
	if w.mode == lostReply {
		return errStore
	}
	return nil
}

func (f faulty) Delete(_ context.Context, key string, _ *driver.DeleteOptions) error {
	if n := f.deletes.Add(1); f.now() == away || n == f.kept.Load() {
		return errStore
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.objects[key]; !ok {
		return errAbsent
	}
	delete(f.objects, key)
	return nil
}
