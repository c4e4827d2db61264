package feeds_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/flusso/flusso-kafka/feeds"
	"github.com/flusso/flusso-kafka/internal/pack"
	"github.com/flusso/flusso-kafka/internal/partition"
	"github.com/flusso/flusso-kafka/internal/wire"
)

// indexed is a feed with one commit of some keys, and the file of its index.
func indexed(t *testing.T) (w world, index string) {
	t.Helper()
	w = newWorld(t, feeds.CreateOptions{Keyed: true})
	var b feeds.Batch
	for i := range 2000 {
		b.Records = append(b.Records, feeds.Record{Key: indexedKey(i), Payload: fmt.Append(nil, i)})
	}
	w.streamOf(seal, b)
	found, err := filepath.Glob(filepath.Join(w.dir, "*", "*", "*", "index-*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return w, found[0]
}

func indexedKey(i int) []byte { return fmt.Appendf(nil, "key-%06d", i) }

// Whatever is damaged of an index, its filter included, which has no checksum in
// the file: a key that is there is found, or the damage is an error.
func TestE6_ADamagedIndexNeverMakesAKeyAbsent(t *testing.T) {
	w, index := indexed(t)
	content, err := os.ReadFile(index)
	if err != nil {
		t.Fatal(err)
	}
	c, told := w.client("reader"), 0
	for at := 0; at < len(content); at += 512 {
		damaged := bytes.Clone(content)
		clear(damaged[at:min(at+1024, len(damaged))])
		if err := os.WriteFile(index, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		item, found, err := c.Latest(t.Context(), feed, indexedKey(1234))
		switch {
		case err != nil && !errorAs(err, func(*pack.DamagedError) bool { return true }):
			t.Errorf("bytes of the index from %d on were cleared: %v", at, err)
		case err != nil:
			told++
		case !found || string(item.Payload) != "1234":
			t.Errorf("bytes of the index from %d on were cleared: the key is there: %t, as %q", at, found, item.Payload)
		}
	}
	if told == 0 {
		t.Error("no damage was told: the test shows nothing")
	}
	if err := os.WriteFile(index, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if item, found, err := c.Latest(t.Context(), feed, indexedKey(1234)); err != nil || string(item.Payload) != "1234" {
		t.Errorf("and when it is whole again: %t, %q, %v", found, item.Payload, err)
	}
}

// remanifest gives the newest commit another manifest, and returns the error of
// its verification.
func (w world) remanifest(change func(*feeds.Manifest)) error {
	w.t.Helper()
	log := feed + ".feed.log"
	ends, err := partition.LookUp(w.t.Context(), w.Client(w.t), log)
	if err != nil {
		w.t.Fatal(err)
	}
	newest, err := partition.Newest(w.t.Context(), w.Opts(), log, ends[log], 0, func(*kgo.Record) (bool, error) { return true, nil })
	if err != nil {
		w.t.Fatal(err)
	}
	e, err := wire.DecodeEvent(newest)
	if err != nil {
		w.t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(w.dir, filepath.FromSlash(e.Commit.Manifest)))
	if err != nil {
		w.t.Fatal(err)
	}
	var m feeds.Manifest
	if err := json.Unmarshal(content, &m); err != nil {
		w.t.Fatal(err)
	}
	change(&m)
	if content, err = json.Marshal(m); err != nil {
		w.t.Fatal(err)
	}
	commit, sum := *e.Commit, sha256.Sum256(content)
	commit.Number++
	e.State.Commits, e.State.Newest = commit.Number, e.State.Newest+1
	e.Stream = e.State.Newest
	commit.ManifestHash = hex.EncodeToString(sum[:])
	commit.Manifest += "-changed"
	e.Commit = &commit
	if err := os.WriteFile(filepath.Join(w.dir, filepath.FromSlash(commit.Manifest)), content, 0o600); err != nil {
		w.t.Fatal(err)
	}
	r, err := wire.EncodeEvent(log, e)
	if err != nil {
		w.t.Fatal(err)
	}
	w.foreign(log, r)
	for v, err := range w.client("verifier").Verify(w.t.Context(), feed) {
		if err != nil || v.Commit.Number == commit.Number { // that no session wrote the event comes behind it
			return errors.Join(err, v.Err)
		}
	}
	return errors.New("it was not verified")
}

// What was written before manifests had sums of an index is read as it was.
func TestAManifestWithoutSumsIsRead(t *testing.T) {
	w, index := indexed(t)
	if err := w.remanifest(func(m *feeds.Manifest) {
		if m.Index.Sums == nil {
			t.Fatal("there are no sums")
		}
		m.Stream, m.Index.Sums = 2, nil
	}); err != nil {
		t.Errorf("verified: %v", err)
	}
	c := w.client("reader")
	for i, want := range map[int]bool{0: true, 1999: true, 2000: false} {
		item, found, err := c.Latest(t.Context(), feed, indexedKey(i))
		if err != nil || found != want || found && (item.Commit != 2 || string(item.Payload) != fmt.Sprint(i)) {
			t.Errorf("latest of key %d: %t, commit %d, %q, %v", i, found, item.Commit, item.Payload, err)
		}
	}
	if err := os.Truncate(index, 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Latest(t.Context(), feed, indexedKey(0)); !errorAs(err, func(*pack.DamagedError) bool { return true }) {
		t.Errorf("latest where the index is cut: %v", err)
	}
}

// Sums that are not those of the index would fail look-ups in what is whole:
// verify tells.
func TestVerifyComparesAnIndexWithItsSums(t *testing.T) {
	w, _ := indexed(t)
	err := w.remanifest(func(m *feeds.Manifest) { m.Stream, m.Index.Sums.CRC32C[1] = 2, m.Index.Sums.CRC32C[1]^1 })
	if !errorAs(err, func(*pack.DamagedError) bool { return true }) {
		t.Errorf("verified: %v", err)
	}
}
