//go:build unix

package bucket_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/flusso/flusso-kafka/internal/bucket"
)

// TestListGoesOnBehindAPage: drivers list a thousand objects at a time.
func TestListGoesOnBehindAPage(t *testing.T) {
	b, dir := open(t)
	const n = 2_300
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := os.WriteFile(filepath.Join(dir, "a", "b", fmt.Sprintf("%04d", i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for name, err := range b.List(t.Context(), "a/") {
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = true
	}
	if len(seen) != n || !seen["a/b/0000"] || !seen["a/b/2299"] {
		t.Errorf("%d objects of %d were listed", len(seen), n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := false
	for _, err := range b.List(ctx, "a/") {
		var e *bucket.Error
		failed = errors.As(err, &e) && e.Op == "list"
		if !failed {
			t.Fatalf("a list whose context had ended: %v", err)
		}
	}
	if !failed {
		t.Error("a list whose context had ended was empty")
	}
}

// TestAFolderThatCannotBeWritten names the object, and leaves nothing. A file
// where a folder belongs stands for a folder without permission, since root
// may do everything.
func TestAFolderThatCannotBeWritten(t *testing.T) {
	b, dir := open(t)
	if err := os.WriteFile(filepath.Join(dir, "orders"), []byte("in the way"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := put(t.Context(), b, "orders/1/pack", "hello")
	var e *bucket.Error
	if !errors.As(err, &e) || e.Object != "orders/1/pack" || e.Bucket == "" {
		t.Errorf("put: %v", err)
	}
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("the folder holds %q", got)
	}
}

// TestAFullDisk publishes nothing of what did not fit, and goes on when there
// is space again. The limit on the size of a file stands for the disk.
func TestAFullDisk(t *testing.T) {
	b, dir := open(t)
	content := strings.Repeat("x", 1<<20)
	full := func(limit uint64, f func()) {
		t.Helper()
		var before syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
				t.Fatal(err)
			}
		}()
		f()
	}
	full(1<<19, func() {
		err := put(t.Context(), b, "a/pack", content)
		if !errors.Is(err, syscall.EFBIG) {
			t.Errorf("put on a full disk: %v", err)
		}
	})
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("a write that did not fit left %q", got)
	}
	if err := put(t.Context(), b, "a/pack", content); err != nil {
		t.Errorf("put when there was space again: %v", err)
	}
	if err := b.Verify(t.Context(), "a/pack", sha256.Sum256([]byte(content)), int64(len(content))); err != nil {
		t.Error(err)
	}
}

// TestAFolderThatIsGone is missing, and no folder that Open makes anew.
func TestAFolderThatIsGone(t *testing.T) {
	_, dir := open(t)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if b, err := bucket.Open(t.Context(), "file://"+filepath.ToSlash(dir)); err == nil {
		t.Errorf("opened a folder that is gone: %v", b.Close())
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open made the folder anew: %v", err)
	}
}
