package ingest

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"

	flusso "github.com/flusso/flusso-kafka"
)

// Config is what [Open] needs. Source and Slot are required, the rest has
// defaults.
type Config struct {
	// Source is the connection string of the database: a URL or key=value
	// pairs, as libpq has them; PG* variables and the password file count.
	Source string
	// Slot is the beginning of the replication slot's name, 1 to 30
	// characters of [a-z0-9_]. See [Open] for the rest of the name.
	Slot string
	// Publication is the publication's name, that of Slot by default.
	Publication string
	// TrustSlot accepts a slot that is ahead of what sinks have acked: neither
	// [*SlotMovedError] nor a snapshot for those. For when sinks were rewound by
	// hand, and their lanes still hold all that they have to see again.
	TrustSlot bool

	// BatchBytes and BatchEnvelopes cut a transaction into batches, 1 MiB and
	// 2,000 by default. They bound what the engine holds of one.
	BatchBytes     int
	BatchEnvelopes int
	// ChunkRows and ChunkBytes say how much of a table a snapshot reads at a
	// time, 5,000 rows and 4 MiB by default.
	ChunkRows  int
	ChunkBytes int
	// IdleEvery is how often, at most, a position without changes is
	// published, 5 s by default.
	IdleEvery time.Duration
	// TablesEvery is how often the catalog is looked at for new and changed
	// tables, 10 s by default.
	TablesEvery time.Duration

	Logger *slog.Logger // nil for none
}

var slotName = regexp.MustCompile(`^[a-z0-9_]{1,30}$`)

// Check finds what is wrong with c without connecting to anything. [Open] does
// the same first.
func (c Config) Check() error { return c.prepare() } //nolint:gocritic // a copy is wanted: prepare fills in defaults

func (c *Config) prepare() error {
	if !slotName.MatchString(c.Slot) {
		return &flusso.NameError{Kind: "slot", Name: c.Slot, Reason: "use 1 to 30 characters of a-z, 0-9 and _"}
	}
	if c.Publication == "" {
		c.Publication = c.Slot
	}
	if len(c.Publication) > 63 {
		return &flusso.NameError{Kind: "publication", Name: c.Publication, Reason: "longer than 63 bytes"}
	}
	for _, v := range []struct {
		name string
		is   *int
		def  int
	}{
		{"BatchBytes", &c.BatchBytes, 1 << 20},
		{"BatchEnvelopes", &c.BatchEnvelopes, 2000},
		{"ChunkRows", &c.ChunkRows, 5000},
		{"ChunkBytes", &c.ChunkBytes, 4 << 20},
	} {
		if *v.is < 0 {
			return &flusso.InvalidError{What: "ingest config", Reason: fmt.Sprintf("%s is %d: use a positive number, or 0 for %d", v.name, *v.is, v.def)}
		}
		if *v.is == 0 {
			*v.is = v.def
		}
	}
	if c.IdleEvery < 0 || c.TablesEvery < 0 {
		return &flusso.InvalidError{What: "ingest config", Reason: "IdleEvery and TablesEvery are not negative"}
	}
	if c.IdleEvery == 0 {
		c.IdleEvery = 5 * time.Second
	}
	if c.TablesEvery == 0 {
		c.TablesEvery = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}
