package feeds_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/flusso/flusso-kafka/feeds"
)

// sampleDir keeps what TestF5_Sample writes, for readers in other languages:
// testdata/commits.py compares it with what this package says of it.
var sampleDir = flag.String("sample", "", "keep the feeds of TestF5_Sample in this folder")

// sampled is what is written beside the bucket: what the Go client says of a
// feed. Bytes are hex, 64-bit numbers decimal strings.
type sampled struct {
	Feed    string          `json:"feed"`
	Keyed   bool            `json:"keyed"`
	Latest  string          `json:"latest"`
	Bucket  string          `json:"bucket"` // folder, beside this file
	Commits []sampledCommit `json:"commits"`
	Records []sampledRecord `json:"records"`
	Newest  []sampledRecord `json:"newest"` // what Latest says of every key
	Absent  []string        `json:"absent"` // keys that never were
}

type sampledCommit struct {
	Number       uint64 `json:"number"`
	Stream       uint64 `json:"stream"`
	Epoch        uint64 `json:"epoch"`
	Records      uint64 `json:"records"`
	First        uint64 `json:"first"`
	Last         uint64 `json:"last"`
	Bytes        uint64 `json:"bytes"`
	Message      string `json:"message"`
	Manifest     string `json:"manifest"`
	ManifestHash string `json:"manifestHash"`
}

type sampledRecord struct {
	Stream      uint64  `json:"stream"`
	Sequence    uint64  `json:"sequence"`
	Key         *string `json:"key"`
	Version     *string `json:"version"`
	Tombstone   bool    `json:"tombstone"`
	Fingerprint string  `json:"fingerprint"`
	Payload     string  `json:"payload"` // SHA-256 of it
	Size        int     `json:"size"`    // of the payload
	AppendedAt  int64   `json:"appendedAt"`
}

func sample(i feeds.Item) sampledRecord {
	sum := sha256.Sum256(i.Payload)
	r := sampledRecord{
		Stream: i.Stream, Sequence: i.Sequence, Tombstone: i.Tombstone, Fingerprint: hex.EncodeToString(i.Identity()),
		Payload: hex.EncodeToString(sum[:]), Size: len(i.Payload), AppendedAt: i.AppendedAt.UnixMilli(),
	}
	if i.Key != nil {
		k := hex.EncodeToString(i.Key)
		r.Key = &k
	}
	if i.Version != nil {
		v := strconv.FormatUint(*i.Version, 10)
		r.Version = &v
	}
	return r
}

// awkwardKeys are an empty key, keys that are no text, beginnings of each
// other, and long ones with a beginning in common.
func awkwardKeys() [][]byte {
	long, high := bytes.Repeat([]byte("x"), 300), bytes.Repeat([]byte{0xff}, 300)
	keys := [][]byte{{}, {0}, {0, 0}, {0xff}, {0xff, 0xfe, 0x80}, []byte("k"), []byte("k1"), []byte("k10"), []byte("ü☕"), []byte("'; --"), high, high[:257], append(slices.Clone(high), 0)}
	for i := range byte(20) {
		keys = append(keys, append(slices.Clone(long), i), long[:200+i])
	}
	return keys
}

// TestF5_Sample writes feeds of every kind through sessions, and reads them
// back; with -sample it leaves them to others.
func TestF5_Sample(t *testing.T) {
	dir := *sampleDir
	if dir == "" {
		dir = t.TempDir()
	}
	w := newWorld(t, feeds.CreateOptions{})
	rng := rand.New(rand.NewPCG(2, 3))
	for name, o := range map[string]feeds.CreateOptions{
		"by-sequence": {Keyed: true},
		"by-version":  {Keyed: true, Latest: feeds.LatestVersion},
		"keyless":     {},
	} {
		folder := filepath.Join(dir, name)
		o.Bucket = "file://" + filepath.ToSlash(folder)
		c := w.client("sampler", func(cfg *feeds.Config) { cfg.PackBytes = 12 << 10 })
		settings, err := c.Create(t.Context(), name, o)
		if err != nil {
			t.Fatal(err)
		}
		seal := func(c *feeds.Client, message string, batches ...feeds.Batch) {
			t.Helper()
			s, err := c.Open(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				if _, err := s.AppendAsync(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := s.Seal(t.Context(), message); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		seal(c, "several packs ☕", mixed(rng, o, 400, 200)...)
		seal(c, "")
		seal(c, "keyless \"alone\"", batch("", "only", "payloads"))
		large := w.client("large") // of the usual size: several row groups
		seal(large, "large", mixed(rng, o, 30, 1<<20-2000)...)
		s := sampleOf(t, c, name, settings)
		s.Bucket = name
		content, err := json.MarshalIndent(s, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// mixed returns batches of n records of all kinds that a feed takes.
func mixed(rng *rand.Rand, o feeds.CreateOptions, n, size int) []feeds.Batch {
	keys := awkwardKeys()
	var batches []feeds.Batch
	for i := range n {
		r := feeds.Record{Payload: make([]byte, rng.IntN(size+1))}
		for j := range r.Payload {
			r.Payload[j] = byte(rng.Uint32())
		}
		if o.Keyed && i%5 > 0 {
			r.Key = keys[rng.IntN(len(keys)-1)] // the last one stays absent
			r.Tombstone = rng.IntN(6) == 0
		}
		if r.Key != nil && o.Latest == feeds.LatestVersion || rng.IntN(3) == 0 {
			v := []uint64{0, 1, 7, 1 << 53, 1<<63 - 1, 1 << 63, math.MaxUint64}[rng.IntN(7)]
			r.Version = &v
		}
		if rng.IntN(4) == 0 {
			sum := sha256.Sum256(fmt.Append(nil, i))
			r.Fingerprint = sum[:]
		}
		if i%3 == 0 {
			batches = append(batches, feeds.Batch{})
		}
		last := &batches[len(batches)-1]
		last.Records = append(last.Records, r)
	}
	return batches
}

// sampleOf asks the client for all of a feed, and checks what it can alone.
func sampleOf(t *testing.T, c *feeds.Client, name string, settings feeds.Settings) sampled {
	t.Helper()
	s := sampled{Feed: name, Keyed: settings.Keyed, Latest: settings.Latest, Commits: []sampledCommit{}, Records: []sampledRecord{}, Newest: []sampledRecord{}, Absent: []string{}}
	for k, err := range c.History(t.Context(), name) {
		if err != nil {
			t.Fatal(err)
		}
		s.Commits = append(s.Commits, sampledCommit{k.Number, k.Stream, k.Epoch, k.Records, k.First, k.Last, k.Bytes, k.Message, k.Manifest, k.ManifestHash})
	}
	if len(s.Commits) != 4 || s.Commits[1].Records != 0 {
		t.Fatalf("%s has commits %+v, want four, of which the second is empty", name, s.Commits)
	}
	newest := map[string]feeds.Item{}
	for item, err := range c.Read(t.Context(), name, feeds.ReadOptions{Sealed: true}) {
		if err != nil {
			t.Fatal(err)
		}
		s.Records = append(s.Records, sample(item))
		if item.Key == nil {
			continue
		}
		old, seen := newest[string(item.Key)]
		if !seen || settings.Latest == feeds.LatestSequence || *item.Version >= *old.Version {
			item.Key, item.Payload, item.Fingerprint = bytes.Clone(item.Key), bytes.Clone(item.Payload), bytes.Clone(item.Identity())
			newest[string(item.Key)] = item
		}
	}
	for v, err := range c.Verify(t.Context(), name) {
		if err = errors.Join(err, v.Err); err != nil {
			t.Errorf("verify %s: %v", name, err)
		}
	}
	if !settings.Keyed {
		return s
	}
	for _, k := range awkwardKeys() {
		item, found, err := c.Latest(t.Context(), name, k)
		if err != nil {
			t.Fatal(err)
		}
		want, present := newest[string(k)]
		if found != present {
			t.Fatalf("%s: key %q found: %t, want %t", name, k, found, present)
		}
		if !found {
			s.Absent = append(s.Absent, hex.EncodeToString(k))
			continue
		}
		if item.Stream != want.Stream || item.Sequence != want.Sequence || !bytes.Equal(item.Payload, want.Payload) {
			t.Errorf("%s: latest of %.20q is %d/%d, want %d/%d", name, k, item.Stream, item.Sequence, want.Stream, want.Sequence)
		}
		s.Newest = append(s.Newest, sample(item))
	}
	if len(s.Absent) == 0 || len(s.Newest) < 10 {
		t.Errorf("%s: %d keys, %d absent: the sample shows too little", name, len(s.Newest), len(s.Absent))
	}
	return s
}
