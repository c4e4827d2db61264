package bucket_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/flusso/flusso-kafka/internal/bucket"
)

func open(t *testing.T) (*bucket.Bucket, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "made", "here")
	b, err := bucket.Create(t.Context(), "file://"+filepath.ToSlash(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, dir
}

// files returns every file of a folder: nothing but objects may be left there.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func put(ctx context.Context, b *bucket.Bucket, name, content string) error {
	return b.Put(ctx, name, strings.NewReader(content), sha256.Sum256([]byte(content)), int64(len(content)))
}

func TestPutIsThereWholeAndAlone(t *testing.T) {
	b, dir := open(t)
	for range 2 { // a second time changes nothing
		if err := put(t.Context(), b, "orders-1/00001/pack-1", "hello"); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := files(t, dir), []string{"orders-1/00001/pack-1"}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %q, want %q", got, want)
	}
	got, err := b.Read(t.Context(), "orders-1/00001/pack-1", 5)
	if err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := b.Read(t.Context(), "orders-1/00001/pack-1", 4); err == nil {
		t.Error("five bytes were read with a limit of four")
	}
	part := make([]byte, 3)
	if n, err := b.At(t.Context(), "orders-1/00001/pack-1").ReadAt(part, 2); n != 3 || err != nil || string(part) != "llo" {
		t.Errorf("part %q, %d, %v", part, n, err)
	}
	if n, err := b.At(t.Context(), "orders-1/00001/pack-1").ReadAt(part, 4); n != 1 || !errors.Is(err, io.EOF) {
		t.Errorf("part at the end: %d, %v", n, err)
	}
}

// broken fails after some bytes.
type broken struct {
	io.ReadSeeker
	left int
}

var errBroken = errors.New("disk on fire")

func (b *broken) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errBroken
	}
	n, err := b.ReadSeeker.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func TestAWriteThatFailsLeavesNothing(t *testing.T) {
	b, dir := open(t)
	content := bytes.Repeat([]byte("x"), 1<<20)
	err := b.Put(t.Context(), "a/b", &broken{bytes.NewReader(content), 1 << 19}, sha256.Sum256(content), int64(len(content)))
	if !errors.Is(err, errBroken) {
		t.Errorf("put: %v", err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("the folder holds %q after a write that failed", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := put(ctx, b, "a/c", "late"); err == nil {
		t.Error("put with a context that had ended returned nil")
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("the folder holds %q after a write that was cancelled", got)
	}
}

func TestVerifyTellsMissingFromChanged(t *testing.T) {
	b, dir := open(t)
	sum := sha256.Sum256([]byte("hello"))
	if err := b.Verify(t.Context(), "x", sum, 5); !errors.Is(err, bucket.ErrMissing) {
		t.Errorf("missing: %v", err)
	}
	if err := put(t.Context(), b, "x", "hello"); err != nil {
		t.Fatal(err)
	}
	for _, changed := range []string{"hellO", "hell", ""} {
		if err := os.WriteFile(filepath.Join(dir, "x"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := b.Verify(t.Context(), "x", sum, 5); !errors.Is(err, bucket.ErrDiffers) {
			t.Errorf("changed to %q: %v", changed, err)
		}
	}
	if err := put(t.Context(), b, "x", "hello"); err != nil {
		t.Errorf("put over what was cut off: %v", err)
	}
}

func TestListAndDelete(t *testing.T) {
	b, _ := open(t)
	for _, name := range []string{"a/1", "a/2", "b/1"} {
		if err := put(t.Context(), b, name, name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := b.Delete(t.Context(), "a/1"); err != nil {
			t.Error(err)
		}
	}
	var got []string
	for name, err := range b.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name)
	}
	if want := []string{"a/2"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
}

func TestNamesHideWhatMayBeSecret(t *testing.T) {
	got := bucket.Name("s3://key:secret@shop-feeds/below?region=eu&secret=1#f")
	if want := "s3://shop-feeds/below"; got != want {
		t.Errorf("name %q, want %q", got, want)
	}
	_, err := bucket.Open(t.Context(), "nosuch://user:secret@here?token=secret")
	if e := (*bucket.Error)(nil); !errors.As(err, &e) || strings.Contains(e.Bucket, "secret") {
		t.Errorf("open: %v", err)
	}
}
