package feeds_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/bucket"
)

// ownMounts marks a process that may mount what nobody else sees.
const ownMounts = "FLUSSO_FEEDS_TEST_OWN_MOUNTS"

// A disk that is full, really: small file systems in memory, mounted by a process
// in user and mount namespaces of its own, which needs no permission where the
// kernel gives such namespaces to everybody.
func TestE11E12_ADiskThatIsFull(t *testing.T) {
	if os.Getenv(ownMounts) == "" {
		inOwnMounts(t)
		return
	}
	for _, at := range []string{"bucket", "staging"} {
		t.Run(at, func(t *testing.T) {
			d := newDisks(t)
			failed, sealed := 0, 0
			// From nothing to more than a stream takes: it is full in the middle of a
			// pack, before the index, before the manifest, or not at all.
			for free := int64(0); free <= 640<<10; free += 64 << 10 {
				if d.sealOn(t, at, free) {
					sealed++
				} else {
					failed++
				}
			}
			t.Logf("%d seals failed on the full disk and were finished when it was not, %d had room enough", failed, sealed)
			if failed < 3 || sealed == 0 {
				t.Errorf("%d seals failed, %d had room enough: the test shows too little", failed, sealed)
			}
			d.finish(t)
		})
	}
	t.Run("until nothing more is taken", appendOnAFullDisk)
}

// inOwnMounts runs the test that calls it in a process that may mount.
func inOwnMounts(t *testing.T) {
	t.Helper()
	own := func(args ...string) *exec.Cmd {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), ownMounts+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		return cmd
	}
	if out, err := own("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", t.TempDir()).CombinedOutput(); err != nil {
		t.Skipf("a disk that is full needs a file system of its own, and here a process gets no namespaces to mount one in: %v %s", err, out)
	}
	out, err := own(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m").CombinedOutput()
	t.Logf("in namespaces of its own:\n%s", out)
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in namespaces of its own: %v", err)
	}
}

// disk mounts a file system of some size.
func disk(t *testing.T, size int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves some bytes of a disk free, until what it returns is called.
func fill(t *testing.T, dir string, free int64) (mend func()) {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	left := int64(s.Bavail) * s.Bsize
	if left < free {
		t.Fatalf("%d bytes of %s are free, %d were to be left", left, dir, free)
	}
	ballast, err := os.CreateTemp(dir, "ballast-")
	if err == nil && left > free {
		err = syscall.Fallocate(int(ballast.Fd()), 0, 0, left-free)
	}
	if err = errors.Join(err, ballast.Close()); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(ballast.Name()); err != nil {
			t.Error(err)
		}
	}
}

// disks are a feed whose bucket is on one disk, and whose packs are staged on
// another.
type disks struct {
	world

	bucket, staging string
	writer          *feeds.Client
	warned          heard
	rng             *rand.Rand
	want            []string // what is to be read
}

func newDisks(t *testing.T) *disks {
	t.Helper()
	d := &disks{bucket: disk(t, 16<<20), staging: disk(t, 16<<20), warned: make(heard, 1), rng: rand.New(rand.NewPCG(3, 4))}
	d.world = newWorld(t, feeds.CreateOptions{Keyed: true, Bucket: "file://" + d.bucket, MaxUnsealedBytes: 1 << 20})
	d.writer = d.client("writer", func(c *feeds.Config) {
		c.StagingDir, c.PackBytes, c.Logger = d.staging, 100<<10, slog.New(d.warned)
	})
	d.writer.SetFirstPause(time.Millisecond)
	return d
}

// heard is told of each warning, if it listens.
type heard chan string

// Enabled implements [slog.Handler].
func (heard) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements [slog.Handler].
func (h heard) Handle(_ context.Context, r slog.Record) error {
	select {
	case h <- r.Message:
	default:
	}
	return nil
}

// WithAttrs implements [slog.Handler].
func (h heard) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements [slog.Handler].
func (h heard) WithGroup(string) slog.Handler { return h }

// batch is one of 50 KB that can't be compressed.
func (d *disks) batch(i int) feeds.Batch {
	r := feeds.Record{Key: fmt.Append(nil, i), Payload: make([]byte, 50_000)}
	for j := range r.Payload {
		r.Payload[j] = byte(d.rng.Uint32())
	}
	return feeds.Batch{Records: []feeds.Record{r}}
}

func (d *disks) read(t *testing.T) (all []string, unsealed int) {
	t.Helper()
	for item, err := range d.client("reader").Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if item.Commit == 0 {
			unsealed++
		}
		all = append(all, mark(item.Stream, item.Payload))
	}
	return all, unsealed
}

func mark(stream uint64, payload []byte) string {
	return fmt.Sprintf("%d %x", stream, sha256.Sum256(payload))
}

// sealOn appends to a stream and seals it with so much room on one of the disks,
// then, where that was not enough, with enough; it reports whether it was.
func (d *disks) sealOn(t *testing.T, at string, free int64) bool {
	t.Helper()
	before := len(d.history())
	mend := fill(t, map[string]string{"bucket": d.bucket, "staging": d.staging}[at], free)
	s, err := d.writer.Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	const batches = 8
	for i := range batches {
		b := d.batch(i)
		if _, err := s.Append(t.Context(), b); err != nil {
			t.Fatalf("%d bytes are free: append: %v", free, err)
		}
		d.want = append(d.want, mark(s.Stream(), b.Records[0].Payload))
	}
	_, err = s.Seal(t.Context(), "m")
	enough := err == nil
	if !enough {
		if !errors.Is(err, syscall.ENOSPC) || !errorAs(err, func(e *feeds.SealError) bool { return e.Stream == s.Stream() }) ||
			!strings.Contains(err.Error(), d.bucket) && !strings.Contains(err.Error(), d.staging) ||
			at == "bucket" && !errorAs(err, func(e *bucket.Error) bool { return e.Op == "write" && e.Object != "" }) {
			t.Errorf("%d bytes are free: sealed: %v", free, err)
		}
		if got := len(d.history()); got != before {
			t.Errorf("%d bytes are free: %d commits are visible, want %d", free, got, before)
		}
		if got, unsealed := d.read(t); !slices.Equal(got, d.want) || unsealed != batches {
			t.Errorf("%d bytes are free: %d records are read, %d of them not sealed, want %d and %d", free, len(got), unsealed, len(d.want), batches)
		}
	}
	mend()
	if c, err := s.Seal(t.Context(), "m"); err != nil || c.Records != batches {
		t.Errorf("%d bytes were free, and more are now: sealed: %d records, %v", free, c.Records, err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return enough
}

// finish looks at what is left on the disks, and at what is read.
func (d *disks) finish(t *testing.T) {
	t.Helper()
	if got, unsealed := d.read(t); !slices.Equal(got, d.want) || unsealed > 0 {
		t.Errorf("%d records are read, %d of them not sealed, want %d", len(got), unsealed, len(d.want))
	}
	for i, err := range d.verified() {
		if err != nil {
			t.Errorf("commit %d: %v", i+1, err)
		}
	}
	for object, err := range d.client("reader").Leftovers(t.Context(), feed) {
		t.Errorf("%s is left, %v", object, err)
	}
	err := filepath.WalkDir(d.bucket, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "feed.json" {
			return err
		}
		content, err := os.ReadFile(path)
		sum := sha256.Sum256(content)
		if !strings.HasSuffix(e.Name(), "-"+hex.EncodeToString(sum[:])) {
			t.Errorf("%s in the bucket is not what it is called by", e.Name())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	staged, err := os.ReadDir(d.staging)
	if err != nil || len(staged) > 0 {
		t.Errorf("%q are left in the staging folder, %v", staged, err)
	}
}

// appendOnAFullDisk: nothing can be flushed, appends go on until the feed holds
// as much as it may, and then say why. A reader without room for a pack says so.
func appendOnAFullDisk(t *testing.T) {
	d := newDisks(t)
	s, err := d.writer.Open(t.Context(), feed)
	if err != nil {
		t.Fatal(err)
	}
	mend := fill(t, d.bucket, 0)
	acked := 0
	for ; err == nil; acked++ {
		b := d.batch(acked)
		if acked == 4 { // a pack is full: by now the flusher has met it, and is at it again
			if got := <-d.warned; got != "flush to the bucket: it is tried again" {
				t.Errorf("warned of %q", got)
			}
		}
		if _, err = s.Append(t.Context(), b); err == nil {
			d.want = append(d.want, mark(s.Stream(), b.Records[0].Payload))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) || !errorAs(err, func(e *feeds.FullError) bool { return e.Limit == 1<<20 }) {
		t.Errorf("append number %d: %v", acked, err)
	}
	if got, _ := d.read(t); !slices.Equal(got, d.want) || len(got) != 20 {
		t.Errorf("%d records are read, %d were acked", len(got), len(d.want))
	}
	mend()
	if _, err := s.Seal(t.Context(), "m"); err != nil {
		t.Errorf("sealed when there is room: %v", err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	mend = fill(t, d.staging, 0)
	reader := d.client("reader", func(c *feeds.Config) { c.StagingDir = d.staging })
	read := 0
	for _, err = range reader.Read(t.Context(), feed, feeds.ReadOptions{}) {
		if err == nil {
			read++
		}
	}
	if read != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("without room for a pack %d records are read, then %v", read, err)
	}
	mend()
	d.finish(t)
}
