package gateway

import (
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/flusso/flusso-kafka/feeds"
)

// answer answers with JSON.
func answer(w http.ResponseWriter, status int, body any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // a client that went away is nobody's error
	return nil
}

type holderJSON struct {
	Name    string  `json:"name"`
	Address *string `json:"address"` // null: nobody can send it anything
}

func newHolder(h feeds.Holder) *holderJSON {
	out := &holderJSON{Name: h.Name}
	if h.Address != "" {
		out.Address = &h.Address
	}
	return out
}

type holdingJSON struct {
	Feed   string      `json:"feed"`
	Epoch  uint64      `json:"epoch"`
	Holder *holderJSON `json:"holder"`
}

type settingsJSON struct {
	ID               string `json:"id"`
	Keyed            bool   `json:"keyed"`
	Latest           string `json:"latest"`
	Bucket           string `json:"bucket"`
	MaxUnsealedBytes uint64 `json:"maxUnsealedBytes"`
}

type streamJSON struct {
	Stream       uint64 `json:"stream"`
	State        string `json:"state"`
	LastSequence uint64 `json:"lastSequence"`
	Bytes        uint64 `json:"bytes"`
	Message      string `json:"message"`
}

type descriptionJSON struct {
	Feed         string       `json:"feed"`
	Settings     settingsJSON `json:"settings"`
	Epoch        uint64       `json:"epoch"`
	Holder       *holderJSON  `json:"holder"`
	Streams      []streamJSON `json:"streams"`
	Commits      uint64       `json:"commits"`
	NewestStream uint64       `json:"newestStream"`
	Event        string       `json:"event"`
	At           time.Time    `json:"at"`
	LastActivity time.Time    `json:"lastActivity"`
	Deleting     bool         `json:"deleting"`
}

func newDescription(d feeds.Description) descriptionJSON {
	out := descriptionJSON{
		Feed: d.Feed, Epoch: d.Epoch, Holder: newHolder(d.Holder), Streams: []streamJSON{},
		Settings: settingsJSON{d.Settings.ID, d.Settings.Keyed, d.Settings.Latest, d.Settings.Bucket, d.Settings.MaxUnsealedBytes},
		Commits:  d.Commits, NewestStream: d.Newest, Event: d.Event, At: d.At.UTC(), LastActivity: lastActivity(d), Deleting: d.Deleting,
	}
	for _, s := range d.Streams {
		out.Streams = append(out.Streams, streamJSON{s.Number, s.State, s.Last, s.Bytes, s.Message})
	}
	return out
}

// lastActivity is when the newest of what is on record happened.
func lastActivity(d feeds.Description) time.Time {
	if d.Appended.After(d.At) {
		return d.Appended.UTC()
	}
	return d.At.UTC()
}

type leftJSON struct {
	Stream       uint64 `json:"stream"`
	Sealed       bool   `json:"sealed"`
	LastSequence uint64 `json:"lastSequence"`
	Bytes        uint64 `json:"bytes"`
}

type sessionJSON struct {
	Feed         string     `json:"feed"`
	FeedID       string     `json:"feedId"`
	Stream       uint64     `json:"stream"`
	FencingToken uint64     `json:"fencingToken"`
	LastSequence uint64     `json:"lastSequence"`
	Left         []leftJSON `json:"left"`
}

func newSession(s *feeds.Session, last uint64) sessionJSON {
	out := sessionJSON{
		Feed: s.Feed(), FeedID: s.Settings().ID, Stream: s.Stream(), FencingToken: s.Epoch(), LastSequence: last, Left: []leftJSON{},
	}
	for _, l := range s.Left() {
		out.Left = append(out.Left, leftJSON{l.Stream, l.Sealed, l.Last, l.Bytes})
	}
	return out
}

type rangeJSON struct {
	Stream   uint64 `json:"stream"`
	First    uint64 `json:"first"`
	Last     uint64 `json:"last"`
	Records  uint64 `json:"records"`
	Repeated bool   `json:"repeated"`
}

type commitJSON struct {
	Commit       uint64    `json:"commit"`
	Stream       uint64    `json:"stream"`
	Records      uint64    `json:"records"`
	First        uint64    `json:"first"`
	Last         uint64    `json:"last"`
	Bytes        uint64    `json:"bytes"`
	Message      string    `json:"message"`
	At           time.Time `json:"at"`
	Epoch        uint64    `json:"epoch"`
	Manifest     string    `json:"manifest"`
	ManifestHash string    `json:"manifestHash"`
	Warning      *string   `json:"warning"`
}

func newCommit(c feeds.Commit) commitJSON {
	out := commitJSON{
		Commit: c.Number, Stream: c.Stream, Records: c.Records, First: c.First, Last: c.Last, Bytes: c.Bytes,
		Message: c.Message, At: c.At.UTC().Truncate(time.Millisecond), Epoch: c.Epoch, Manifest: c.Manifest, ManifestHash: c.ManifestHash,
	}
	if c.Warning != nil {
		text := c.Warning.Error()
		out.Warning = &text
	}
	return out
}

type recordJSON struct {
	Stream      uint64    `json:"stream"`
	Sequence    uint64    `json:"sequence"`
	Commit      *uint64   `json:"commit"` // null for a record that is not sealed
	AppendedAt  time.Time `json:"appendedAt"`
	Key         []byte    `json:"key"` // base64; null for none
	Version     *string   `json:"version"`
	Tombstone   bool      `json:"tombstone"`
	Fingerprint string    `json:"fingerprint"`     // hex
	Payload     []byte    `json:"payload"`         // base64
	Place       string    `json:"place,omitempty"` // of one that is read on from
}

func newRecord(i *feeds.Item) recordJSON {
	out := recordJSON{
		Stream: i.Stream, Sequence: i.Sequence, AppendedAt: i.AppendedAt.UTC(), Key: i.Key, Tombstone: i.Tombstone,
		Fingerprint: hex.EncodeToString(i.Identity()), Payload: i.Payload,
	}
	if out.Payload == nil {
		out.Payload = []byte{}
	}
	if i.Commit != 0 {
		out.Commit = &i.Commit
	}
	if i.Version != nil {
		text := strconv.FormatUint(*i.Version, 10)
		out.Version = &text
	}
	return out
}

type discardedJSON struct {
	Stream    uint64 `json:"stream"`
	Discarded bool   `json:"discarded"` // always true
	Place     string `json:"place"`
}
