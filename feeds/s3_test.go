//go:build !nocloud

package feeds_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rclone/gofakes3"
	"github.com/rclone/gofakes3/s3mem"
	_ "gocloud.dev/blob/s3blob"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
)

// s3 is a store that speaks the protocol of S3, and checks signatures.
type s3 struct {
	*s3mem.Backend
	url    string
	denies atomic.Bool  // everything, as when a policy was changed; what is down is asked again and again
	broken atomic.Int64 // so many uploads are taken, and their answers cut off
	parts  atomic.Int64 // of uploads in parts
}

// newS3 starts a store with a bucket; its credentials are in the environment.
func newS3(t *testing.T) *s3 {
	t.Helper()
	s := &s3{Backend: s3mem.New()}
	if err := s.CreateBucket(t.Context(), "commits"); err != nil {
		t.Fatal(err)
	}
	served := gofakes3.New(s, gofakes3.WithV4Auth(map[string]string{"key": "secret"})).Server()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.denies.Load() {
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte("<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"))
			return
		}
		if r.URL.Query().Has("partNumber") {
			s.parts.Add(1)
		}
		if r.Method == http.MethodPut && s.broken.Add(-1) >= 0 {
			served.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		served.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	s.url = "s3://commits?region=eu-central-1&use_path_style=true&endpoint=" + server.URL
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true",
		"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere",
	} {
		t.Setenv(name, value)
	}
	return s
}

// names returns the names of the objects.
func (s *s3) names(t *testing.T) []string {
	t.Helper()
	list, err := s.ListBucket(t.Context(), "commits", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range list.Contents {
		names = append(names, o.Key)
	}
	return names
}

// damage flips a bit of an object.
func (s *s3) damage(t *testing.T, name string) {
	t.Helper()
	o, err := s.GetObject(t.Context(), "commits", name, nil)
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, o.Size)
	for n := 0; n < len(content); {
		m, err := o.Contents.Read(content[n:])
		if n += m; err != nil && n < len(content) {
			t.Fatal(err)
		}
	}
	content[len(content)/2] ^= 1
	if _, err := s.PutObject(t.Context(), "commits", name, nil, strings.NewReader(string(content)), int64(len(content))); err != nil {
		t.Fatal(err)
	}
}

func TestE12E13_CommitsInAStoreThatSpeaksS3(t *testing.T) {
	s := newS3(t)
	w := newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: s.url})
	small := func(c *feeds.Config) { c.PackBytes = 100 }
	c := w.client("a", small)
	c.SetFirstPause(1)
	open := func() *feeds.Session {
		t.Helper()
		x, err := c.Open(t.Context(), feed)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			b := batch(strings.Repeat(fmt.Sprint(i), 60))
			b.Records[0].Key = fmt.Appendf(nil, "k%d", i)
			if _, err := x.Append(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		return x
	}
	s.broken.Store(1) // an upload whose answer is lost
	x := open()
	first, err := x.Seal(t.Context(), "hourly")
	if err != nil || first.Records != 8 {
		t.Fatalf("sealed %+v, %v", first, err)
	}
	if left := s.broken.Load(); left > 0 {
		t.Errorf("%d answer was not cut off", left)
	}
	// A seal while the store refuses is finished when it does no more.
	x = open()
	s.denies.Store(true)
	if _, err := x.Seal(t.Context(), "late"); !errorAs(err, func(e *feeds.SealError) bool { return e.Stream == 2 }) || !errorAs(err, func(e *bucket.Error) bool { return e.Advice != "" }) {
		t.Fatalf("sealed while the store refuses: %v", err)
	}
	_ = x.Close(t.Context())
	s.denies.Store(false)
	if done, err := c.Repair(t.Context(), feed); err != nil || len(done) != 1 || done[0].Number != 2 {
		t.Fatalf("repaired %+v, %v", done, err)
	}
	n := 0
	for item, err := range c.Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Repeat(fmt.Sprint(n%8), 60); string(item.Payload) != want || item.Commit != uint64(1+n/8) {
			t.Errorf("record %d is %s of commit %d", n, item.Payload, item.Commit)
		}
		n++
	}
	if n != 16 {
		t.Errorf("%d records are read, want 16", n)
	}
	if item, found, err := c.Latest(t.Context(), feed, []byte("k3")); err != nil || !found || item.Commit != 2 || item.Sequence != 4 {
		t.Errorf("latest: %+v, %t, %v", item, found, err)
	}
	verify := func() (bad []error) {
		t.Helper()
		for v, err := range c.Verify(t.Context(), feed) {
			if err != nil {
				t.Fatal(err)
			}
			bad = append(bad, v.Err)
		}
		return bad
	}
	if got := verify(); !slices.Equal(got, []error{nil, nil}) {
		t.Errorf("verified: %v", got)
	}
	at := slices.IndexFunc(s.names(t), func(name string) bool {
		return strings.Contains(name, "/000000000002/") && strings.Contains(name, "/pack-")
	})
	s.damage(t, s.names(t)[at])
	if got := verify(); got[0] != nil || !errors.Is(got[1], bucket.ErrDiffers) {
		t.Errorf("verified with a pack of commit 2 damaged: %v", got)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := s.names(t); len(got) != 0 {
		t.Errorf("a feed that was deleted left %q", got)
	}
}

// TestE12_ALargeObjectGoesInParts: what is above 16 MiB is uploaded in parts, and
// is there whole or not at all.
func TestE12_ALargeObjectGoesInParts(t *testing.T) {
	s := newS3(t)
	b, err := bucket.Open(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	content := make([]byte, 17<<20+1)
	content[len(content)-1] = 1
	sum := sha256.Sum256(content)
	if err := b.Put(t.Context(), "a/large", bytes.NewReader(content), sum, int64(len(content))); err != nil {
		t.Fatal(err)
	}
	if err := b.Verify(t.Context(), "a/large", sum, int64(len(content))); err != nil || s.parts.Load() < 2 {
		t.Errorf("%v, in %d parts", err, s.parts.Load())
	}
	gone := &brokenAt{bytes.NewReader(content), 16<<20 + 5}
	if err := b.Put(t.Context(), "a/other", gone, sha256.Sum256(nil), 3); !errors.Is(err, errStore) {
		t.Errorf("put what cannot be read to its end: %v", err)
	}
	if got := s.names(t); !slices.Equal(got, []string{"a/large"}) {
		t.Errorf("the store holds %q", got)
	}
}

// brokenAt fails to be read behind so many bytes.
type brokenAt struct {
	io.ReadSeeker
	left int
}

func (b *brokenAt) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errStore
	}
	n, err := b.ReadSeeker.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func TestE12_AStoreThatRefusesSaysWhatHelps(t *testing.T) {
	s := newS3(t)
	w := newWorld(t, feeds.CreateOptions{Bucket: s.url})
	c := w.client("a")
	c.SetFirstPause(1)
	create := func(name, url string) error {
		_, err := c.Create(t.Context(), name, feeds.CreateOptions{Bucket: url})
		return err
	}
	absent := strings.Replace(s.url, "s3://commits", "s3://absent", 1)
	wrong := func(t *testing.T) error {
		t.Setenv("AWS_SECRET_ACCESS_KEY", "guess-what")
		return create("wrong", s.url)
	}
	unknown := func(t *testing.T) error {
		t.Setenv("AWS_ACCESS_KEY_ID", "nobody")
		return create("unknown", s.url)
	}
	none := func(t *testing.T) error {
		t.Setenv("AWS_ACCESS_KEY_ID", "")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "")
		return create("none", s.url)
	}
	for what, test := range map[string]struct {
		do   func(*testing.T) error
		want error
	}{
		"a bucket that is not there": {func(*testing.T) error { return create("x", absent) }, bucket.ErrNoBucket},
		"a wrong secret":             {wrong, bucket.ErrCredentials},
		"an unknown key":             {unknown, bucket.ErrCredentials},
		"no credentials":             {none, bucket.ErrCredentials},
	} {
		t.Run(what, func(t *testing.T) {
			err := test.do(t)
			if !errors.Is(err, test.want) || !errorAs(err, func(e *bucket.Error) bool { return e.Advice != "" && strings.HasPrefix(e.Bucket, "s3://") }) {
				t.Errorf("created: %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "secret") && !strings.Contains(what, "secret") || strings.Contains(err.Error(), "guess-what")) {
				t.Errorf("the error tells secrets: %v", err)
			}
		})
	}
	// The bucket is gone while a stream is open: the seal says which it is.
	x, err := c.Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Append(t.Context(), batch("x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range s.names(t) {
		if _, err := s.DeleteObject(t.Context(), "commits", name); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.DeleteBucket(t.Context(), "commits"); err != nil {
		t.Fatal(err)
	}
	if _, err := x.Seal(t.Context(), ""); !errors.Is(err, bucket.ErrNoBucket) || !errorAs(err, func(*feeds.SealError) bool { return true }) {
		t.Errorf("sealed with its bucket gone: %v", err)
	}
	if err := c.Delete(context.Background(), feed, feeds.DeleteOptions{}); !errors.Is(err, bucket.ErrNoBucket) {
		t.Errorf("deleted with its bucket gone: %v", err)
	}
	if err := c.Delete(t.Context(), feed, feeds.DeleteOptions{KeepObjects: true}); err != nil {
		t.Errorf("deleted without its bucket: %v", err)
	}
	if names, err := c.List(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("%q is left: %v", names, err)
	}
}
