package feeds

import (
	"encoding/json"
	"fmt"
	"time"

	flusso "github.com/flusso/flusso-kafka"
	"github.com/flusso/flusso-kafka/internal/pack"
)

// Manifest lists what a commit consists of. It is JSON in the bucket;
// docs/feed-format.md specifies it.
type Manifest struct {
	Version  int       `json:"v"`
	Feed     string    `json:"feed"`
	FeedID   string    `json:"feedId"`
	Stream   uint64    `json:"stream"`
	Epoch    uint64    `json:"epoch"` // writer epoch that wrote the objects
	First    uint64    `json:"first"` // sequences; 0 for an empty stream
	Last     uint64    `json:"last"`
	Records  uint64    `json:"records"`
	Bytes    uint64    `json:"bytes"` // keys and payloads
	Keyed    bool      `json:"keyed"`
	Latest   string    `json:"latest"` // rule of the key index
	Message  string    `json:"message"`
	SealedAt time.Time `json:"sealedAt"`
	Packs    []Object  `json:"packs"` // in order of their sequences; never null
	Index    *Object   `json:"index"` // null for a stream without keys
}

// Object is an immutable object of the bucket.
type Object struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"`   // bytes
	SHA256  string `json:"sha256"` // of its content, in hex
	First   uint64 `json:"first"`  // sequences that it holds; of an index those of its stream
	Last    uint64 `json:"last"`
	Records uint64 `json:"records"` // of an index: its keys
	// Sums are those of the pieces of an index, by which a look-up knows what it
	// reads; nil in manifests of before there were any.
	Sums *pack.Sums `json:"sums,omitempty"`
}

const (
	manifestVersion = 1
	maxManifest     = 16 << 20 // bytes: 50,000 packs, or a key index of 90 GiB
)

// encode returns the manifest as it goes into the bucket: no larger than what
// readers take, since what can't be read must not be committed.
func (m Manifest) encode() ([]byte, error) {
	content, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode the manifest of stream %d of feed %s: %w", m.Stream, m.Feed, err)
	}
	if len(content) > maxManifest {
		return nil, &flusso.LimitError{
			What: fmt.Sprintf("manifest of stream %d of feed %s, which names %d packs", m.Stream, m.Feed, len(m.Packs)), Limit: "manifest size",
			Value: int64(len(content)), Max: maxManifest, Setting: "PackBytes of the client that seals, --pack-bytes on the command line (larger packs are fewer)",
		}
	}
	return content, nil
}

// parseManifest is the inverse of encode, with what it must say checked.
func parseManifest(name string, content []byte) (Manifest, error) {
	var m Manifest
	bad := func(reason string) (Manifest, error) {
		return Manifest{}, fmt.Errorf("manifest %s: %s", name, reason)
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return bad(err.Error())
	}
	if m.Version != manifestVersion {
		return bad(fmt.Sprintf("version %d, this program reads %d: upgrade it to what wrote this", m.Version, manifestVersion))
	}
	next, records := m.First, uint64(0)
	for i, p := range m.Packs {
		if p.First != next || p.Last < p.First || p.Records != p.Last-p.First+1 {
			return bad(fmt.Sprintf("pack %d holds sequences %d to %d in %d records, %d comes next", i, p.First, p.Last, p.Records, next))
		}
		next, records = p.Last+1, records+p.Records
	}
	if records != m.Records || records > 0 && next != m.Last+1 {
		return bad(fmt.Sprintf("its packs hold %d records up to %d, it says %d up to %d", records, next-1, m.Records, m.Last))
	}
	return m, nil
}

// folderOf is where the objects of a writer epoch of a stream go.
func folderOf(feed, id string, stream, epoch uint64) string {
	return fmt.Sprintf("%s-%s/%012d/e%012d/", feed, id, stream, epoch)
}

// markerOf is the object that ties a bucket to a feed.
func markerOf(feed, id string) string { return fmt.Sprintf("%s-%s/feed.json", feed, id) }
